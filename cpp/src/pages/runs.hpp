// Parquet's hybrid of run lengths and bit packing, in which pages have definition levels and dictionary indices: runs, each of one
// value that is repeated, or of groups of eight values of a few bits each.
//
// What this reads comes from outside; no input makes it read outside of the stream, but for the rest of a word.
#pragma once

#include <cstdint>

#include "pages/copy.hpp"
#include "pages/lanes.hpp"

namespace rapidsmpf::pages {

// Reads the values in order. All lanes have the same state.
class RunReader {
  public:
    // width: bits of a value, at most 32.
    RAPIDSMPF_DEVICE RunReader(std::uint8_t const* data, std::uint32_t bytes, std::uint32_t width)
        : data_{data}, bytes_{bytes}, width_{width} {}

    // Whether the next `n` values are in one run of this value; that run is the current one.
    [[nodiscard]] RAPIDSMPF_DEVICE bool repeats(std::uint32_t value, std::uint32_t n) {
        while (left_ == 0 && place_ < bytes_) {
            if (!next_run()) {
                return false;
            }
        }
        return left_ >= n && !is_packed_ && value_ == value;
    }

    RAPIDSMPF_DEVICE void skip(std::uint32_t n) {
        left_ -= n;
        taken_ += n;
    }

    // Passes over the next `n` values. False if there are not as many.
    [[nodiscard]] RAPIDSMPF_DEVICE bool pass_over(std::uint32_t n) {
        return in_runs(n, [](std::uint32_t, std::uint32_t) { return true; });
    }

    // The same for values of one bit; adds those that are set to `sum`. False also if a value has more bits.
    template <typename Lanes>
    [[nodiscard]] RAPIDSMPF_DEVICE bool count(Lanes const& lanes, std::uint32_t n, std::uint32_t& sum) {
        return in_runs(n, [&](std::uint32_t, std::uint32_t of_run) {
            if (is_packed_) {
                typename Lanes::template Value<std::uint32_t> set;
                lanes.each([&](std::uint32_t lane) {
                    set[lane] = 0;
                    for (auto i = 32 * lane; i < of_run; i += 32 * lane_count) {
                        set[lane] += count_bits(bits(taken_ + i, of_run - i < 32 ? of_run - i : 32));
                    }
                });
                sum += lanes.sum(set);
            } else if (value_ > 1) {
                return false;
            } else {
                sum += value_ * of_run;
            }
            return true;
        });
    }

    // Calls store(index, value) for the next `n` values, each by one of the lanes. False if there are not as many.
    template <typename Lanes, typename Store>
    [[nodiscard]] RAPIDSMPF_DEVICE bool take(Lanes const& lanes, std::uint32_t n, Store&& store) {
        return in_runs(n, [&](std::uint32_t done, std::uint32_t of_run) {
            lanes.each([&](std::uint32_t lane) {
                for (auto i = lane; i < of_run; i += lane_count) {
                    store(done + i, is_packed_ ? packed(taken_ + i) : value_);
                }
            });
            return true;
        });
    }

  private:
    // Calls piece(done, count) for those of the next `n` values that are in one run, run by run: the first is number `done`. False if
    // there are not as many, or if a call has returned false.
    template <typename Piece>
    [[nodiscard]] RAPIDSMPF_DEVICE bool in_runs(std::uint32_t n, Piece&& piece) {
        for (std::uint32_t done = 0; done < n;) {
            if (left_ == 0) {
                if (!next_run()) {
                    return false;
                }
                continue;
            }
            auto const count = left_ < n - done ? left_ : n - done;
            if (!piece(done, count)) {
                return false;
            }
            skip(count);
            done += count;
        }
        return true;
    }

    [[nodiscard]] RAPIDSMPF_DEVICE bool next_run() {
        std::uint32_t head = 0;
        for (std::uint32_t shift = 0;; shift += 7) {
            if (place_ >= bytes_ || shift > 28) {
                return false;
            }
            auto const byte = std::uint32_t{data_[place_++]};
            head |= (byte & 0x7fU) << shift;
            if (byte < 0x80U) {
                break;
            }
        }
        taken_ = 0;
        is_packed_ = (head & 1U) != 0;
        auto const rest = bytes_ - place_;
        if (!is_packed_) {
            auto const value_bytes = (width_ + 7) / 8;
            if (value_bytes > rest) {
                return false;
            }
            value_ = 0;
            for (std::uint32_t i = 0; i < value_bytes; ++i) {
                value_ |= std::uint32_t{data_[place_++]} << (8 * i);
            }
            left_ = head >> 1U;
            return true;
        }
        auto const groups = head >> 1U;
        constexpr std::uint32_t most_groups = 0x7fffffffU / 8;
        if (groups > most_groups) {
            return false;
        }
        left_ = 8 * groups;
        run_ = place_;
        // Some writers truncate the last run to the bytes that its values need.
        auto const run_bytes = std::uint64_t{groups} * width_;
        if (run_bytes <= rest) {
            place_ += static_cast<std::uint32_t>(run_bytes);
        } else {
            left_ = static_cast<std::uint32_t>(std::uint64_t{8} * rest / width_);
            place_ = bytes_;
        }
        return true;
    }

    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t packed(std::uint32_t i) const {
        return width_ == 0 ? 0 : bits(std::uint64_t{i} * width_, width_);
    }

    // So many bits of the packed run, 1 to 32.
    [[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t bits(std::uint64_t first, std::uint32_t n) const {
        auto const* const run = data_ + run_;
        auto const shift = misalignment(run);
        auto const bit = first + 8 * shift;
        auto const* const words = run - shift + bit / 32 * 4;
        auto const in_word = static_cast<std::uint32_t>(bit % 32);
        auto value = std::uint64_t{load_word(words)};
        if (in_word + n > 32) {
            value |= std::uint64_t{load_word(words + 4)} << 32U;
        }
        return static_cast<std::uint32_t>(value >> in_word) & (0xffffffffU >> (32 - n));
    }

    std::uint8_t const* data_;
    std::uint32_t bytes_;
    std::uint32_t width_;
    std::uint32_t place_{0};  // in the stream, behind the current run
    std::uint32_t left_{0};   // values of the current run that have not been taken
    std::uint32_t taken_{0};  // and those that have
    std::uint32_t value_{0};  // that the run repeats
    std::uint32_t run_{0};    // in the stream, where the packed values begin
    bool is_packed_{false};
};

}  // namespace rapidsmpf::pages
