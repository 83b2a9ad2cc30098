// What the program measures. Each case is run by all ranks at once, checks everything that comes out (outside of what is
// timed) and throws when it is not what went in.
#pragma once

#include "arguments.hpp"
#include "job.hpp"

namespace rapidsmpf::bench {

// The Shuffler alone, on buffers that are there: for each size of chunks and number of partitions.
void packed(Job& job, Arguments const& arguments);
// Tables: partition and pack, shuffle, unpack; and the exchange of the same pieces alone. A chunk is what one call partitions.
void table(Job& job, Arguments const& arguments);
// The same from GPU to GPU; each of `cuts` is a number of chunks and of partitions of each rank.
void device_table(Job& job, Arguments const& arguments);
// A message of 8 bytes there and back, an empty shuffle, a barrier.
void latency(Job& job, Arguments const& arguments);
// Rank 1 comes late to a shuffle: what the others use of their cores meanwhile.
void wait(Job& job, Arguments const& arguments);
// All rows to rank 0, more than its memory holds.
void skew(Job& job, Arguments const& arguments);
// One way of being hard on the protocol, by name.
void pattern(Job& job, Arguments const& arguments);

}  // namespace rapidsmpf::bench
