#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include <unistd.h>

#include <rapidsmpf/streaming/network.hpp>

namespace rapidsmpf::streaming {

namespace {

using Event = NetworkTrace::Event;
using What = NetworkTrace::What;

// How many bytes the character at `at` has in UTF-8; 0: what is there is none.
std::size_t length_of_character(std::string_view text, std::size_t at) {
    auto const byte = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
    };
    auto const first = byte(at);
    if (first < 0x80) {
        return 1;
    }
    auto const length = first >= 0xc2 && first < 0xe0   ? 2U
                        : first >= 0xe0 && first < 0xf0 ? 3U
                        : first >= 0xf0 && first < 0xf5 ? 4U
                                                        : 0U;
    for (std::size_t i = 1; i < length; ++i) {
        if ((byte(at + i) & 0xc0) != 0x80) {
            return 0;
        }
    }
    auto const second = byte(at + 1);
    bool const is_overlong = (first == 0xe0 && second < 0xa0) || (first == 0xf0 && second < 0x90);
    bool const is_surrogate_or_beyond =
        (first == 0xed && second >= 0xa0) || (first == 0xf4 && second >= 0x90);
    return is_overlong || is_surrogate_or_beyond ? 0 : length;
}

// As a text of JSON, which is UTF-8: other bytes become U+FFFD.
std::string quoted(std::string const& text) {
    std::string result = "\"";
    for (std::size_t at = 0; at < text.size();) {
        auto const length = length_of_character(text, at);
        char const character = text[at];
        if (length == 0) {
            result += "\\ufffd";
        } else if (character == '"' || character == '\\') {
            result += '\\';
            result += character;
        } else if (length == 1 && static_cast<unsigned char>(character) < 0x20) {
            char code[8];
            std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(character));
            result += code;
        } else {
            result.append(text, at, length);
        }
        at += std::max<std::size_t>(length, 1);
    }
    return result + "\"";
}

// Microseconds, as the format has them.
std::string micros(std::int64_t nanos) {
    char text[40];
    std::snprintf(
        text, sizeof text, "%lld.%03lld", static_cast<long long>(nanos / 1000),
        static_cast<long long>(nanos % 1000));
    return text;
}

std::string wait_name(Event const& event) {
    switch (event.what) {
        case What::send:
            return "waits for room";
        case What::receive:
            return "waits for input";
        case What::drain:
            return "waits for the end of a channel";
        case What::other_wait:
            return "waits for " + detail::name_of(event.wait);
        case What::run:
            break;
    }
    return "runs";
}

// Writes the events of one file.
class Writer {
  public:
    Writer(std::int64_t origin, std::map<std::uint64_t, std::uint64_t> const& numbers)
        : origin_{origin}, numbers_{numbers}, process_{std::to_string(::getpid())} {}

    [[nodiscard]] std::string channel_of(Event const& event) const {
        auto const found = numbers_.find(event.channel);
        return found == numbers_.end() ? std::string{} : "\"channel\":" + std::to_string(found->second);
    }
    [[nodiscard]] std::string arguments_of(Event const& event) const {
        auto const channel = channel_of(event);
        return channel + (channel.empty() ? "" : ",") + "\"sequence\":" + std::to_string(event.sequence)
               + ",\"rows\":" + std::to_string(event.rows) + ",\"bytes\":" + std::to_string(event.bytes);
    }

    void name_track(std::size_t track, std::string const& name) {
        begin("M", track);
        text_ += ",\"name\":\"thread_name\",\"args\":{\"name\":" + quoted(name) + "}}";
        begin("M", track);
        text_ += ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + std::to_string(track) + "}}";
    }
    void slice(
        std::size_t track, std::string const& name, std::int64_t start, std::int64_t end,
        std::string const& arguments) {
        begin("X", track);
        text_ += ",\"name\":" + quoted(name) + ",\"ts\":" + micros(start - origin_)
                 + ",\"dur\":" + micros(end - start) + ",\"args\":{" + arguments + "}}";
    }
    [[nodiscard]] std::string finish(std::size_t dropped) {
        return "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":" + std::to_string(dropped)
               + "},\"traceEvents\":[" + text_ + "\n]}\n";
    }

  private:
    void begin(char const* phase, std::size_t track) {
        text_ += text_.empty() ? "\n" : ",\n";
        text_ += std::string{"{\"ph\":\""} + phase + "\",\"pid\":" + process_
                 + ",\"tid\":" + std::to_string(track);
    }
    std::int64_t origin_;
    std::map<std::uint64_t, std::uint64_t> const& numbers_;
    std::string process_;
    std::string text_;
};

// One track: what one actor, or one of its parts, did one after the other. Events come by their beginning, the run first.
void write_track(Writer& writer, std::size_t track, std::vector<Event const*> const& events) {
    auto const has_received = [](Event const* event) {
        return event->what == What::receive && event->has_message;
    };
    bool const receives = std::ranges::any_of(events, has_received);
    Event const* message = nullptr;  // that it works on
    std::int64_t since = 0;          // when that, or its last send, was over
    std::int64_t last = 0;  // clocks of two processors may differ: nothing begins before the end of the last
    std::int64_t end_of_run = 0;
    auto const work = [&](Event const& on, std::int64_t end) {
        writer.slice(
            track, "message " + std::to_string(on.sequence), since, std::max(since, end),
            writer.arguments_of(on));
    };
    for (auto const* event : events) {
        auto const begin = std::max(event->begin, last);
        if (event->what == What::run) {
            since = begin;
            end_of_run = event->end;
            continue;
        }
        auto const end = std::max(event->end, begin);
        if (message != nullptr && event->what == What::receive) {
            work(*message, begin);
            message = nullptr;
        } else if (!receives && event->what == What::send && event->has_message && since != 0) {
            work(*event, begin);  // who only sends works on what it sends next
        }
        if (end > begin) {
            writer.slice(track, wait_name(*event), begin, end, writer.channel_of(*event));
        }
        if (has_received(event)) {
            message = event;
            since = end;
        } else if (!receives && event->what == What::send) {
            since = end;
        }
        last = end;
    }
    if (message != nullptr) {
        work(*message, std::max(last, end_of_run));  // while it runs: until the last that is known
    }
}

}  // namespace

NetworkTrace::NetworkTrace(std::size_t most_events) : most_events_{most_events} {}

std::int64_t NetworkTrace::now() noexcept {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

void NetworkTrace::add(Event const& event) noexcept {
    MutexLock const lock{mutex_};
    if (events_.size() < most_events_) {
        try {
            events_.push_back(event);
            return;
        } catch (std::bad_alloc const&) {
            most_events_ = events_.size();  // not another try with every message
        }
    }
    ++dropped_;
}

void NetworkTrace::number_channel(std::uint64_t channel, std::uint64_t number) {
    MutexLock const lock{mutex_};
    numbers_.insert_or_assign(channel, number);
}

void NetworkTrace::name_actor(std::uint64_t actor, std::string name) {
    MutexLock const lock{mutex_};
    names_.insert_or_assign(actor, std::move(name));
}

std::size_t NetworkTrace::num_events() const {
    MutexLock const lock{mutex_};
    return events_.size();
}

std::size_t NetworkTrace::num_dropped() const {
    MutexLock const lock{mutex_};
    return dropped_;
}

std::string NetworkTrace::json() const {
    // Actors that add to the trace wait for its lock, under those of their channels: it is kept for a copy only.
    UniqueLock lock{mutex_};
    auto const all = events_;
    auto const names = names_;
    auto const numbers = numbers_;
    auto const dropped = dropped_;
    lock.unlock();
    std::int64_t origin = all.empty() ? 0 : all.front().begin;
    std::map<std::uint64_t, Event const*> runs;
    std::map<std::uint64_t, std::map<void const*, std::vector<Event const*>>> actors;
    for (auto const& event : all) {
        origin = std::min(origin, event.begin);
        if (event.what == What::run) {
            runs.insert_or_assign(event.actor, &event);
        } else if (event.actor != 0) {
            actors[event.actor][event.lane].push_back(&event);
        }
    }
    for (auto const& run : runs) {
        actors.try_emplace(run.first);  // those that did nothing else
    }
    Writer writer{origin, numbers};
    std::size_t track = 0;
    for (auto& [actor, lanes] : actors) {
        auto const found = names.find(actor);
        auto const name = found == names.end() ? "actor " + std::to_string(actor) : found->second;
        // Coroutines of Python may begin before their network does.
        Event run;
        bool const has_ended = runs.contains(actor);
        if (has_ended) {
            run = *runs.at(actor);
            for (auto const& lane : lanes) {
                for (auto const* event : lane.second) {
                    run.begin = std::min(run.begin, event->begin);
                }
            }
        }
        // What no part of it is known to have waited for is its first one's.
        if (lanes.size() > 1) {
            if (auto const common = lanes.find(nullptr); common != lanes.end()) {
                auto events = std::move(common->second);
                lanes.erase(common);
                auto& first = lanes.begin()->second;
                first.insert(first.end(), events.begin(), events.end());
            }
        }
        if (lanes.empty()) {
            lanes.try_emplace(nullptr);
        }
        std::size_t part = 0;
        for (auto& [lane, events] : lanes) {
            writer.name_track(++track, part++ == 0 ? name : name + " (part " + std::to_string(part) + ")");
            if (has_ended) {
                events.push_back(&run);
            }
            std::ranges::stable_sort(events, [](auto const* one, auto const* other) {
                return std::tuple{one->begin, one->what != What::run, one->end}
                       < std::tuple{other->begin, other->what != What::run, other->end};
            });
            if (part == 1 && has_ended) {
                writer.slice(track, name, run.begin, run.end, "");
            }
            write_track(writer, track, events);
        }
    }
    return writer.finish(dropped);
}

}  // namespace rapidsmpf::streaming
