// What rrun prints: its own lines, and what it reads from the pipes of others, line by line.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <poll.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>

#include "output.hpp"
#include "signals.hpp"

namespace rapidsmpf::rrun {

enum class Target : bool { out, err };

// Never blocks. Owns the pipes' reading ends.
class Console {
  public:
    Console();
    Console(Console const&) = delete;
    Console& operator=(Console const&) = delete;

    // Lines from this pipe go, with the tag in front, to rrun's standard output or error.
    void add_stream(FileDescriptor from, std::string tag, Target target);
    // One line on rrun's standard error, in order with what came from the pipes.
    void say(std::string const& message);

    // Appends what to wait for; pump() does what can be done. In between nothing may be added.
    void add_to_poll(std::vector<pollfd>& fds);
    void pump(std::vector<pollfd> const& fds);
    // At the end: passes on everything that is in the pipes by now; who else holds them is not waited for. Gives up on
    // a signal.
    void finish(Signals const& signals);

  private:
    struct Stream {
        Stream(FileDescriptor from_, std::string tag, OutputSink& to_)
            : from{std::move(from_)}, tagger{std::move(tag)}, to{&to_} {}
        FileDescriptor from;
        LineTagger tagger;
        OutputSink* to;
    };
    void read(Stream& stream);
    bool drain(Signals const& signals);

    OutputSink stdout_;
    OutputSink stderr_;
    std::vector<Stream> streams_;
    std::size_t first_polled_{0};  // where the streams begin in what add_to_poll() appended to
};

}  // namespace rapidsmpf::rrun
