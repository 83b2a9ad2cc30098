// The sockets by which UCX wakes a process that shares memory with others.
//
// They are datagram sockets without a path, which every account of the machine may send to. UCX throws away what
// arrives, but takes an empty datagram for the end of a connection, and then ends the process ("failed to arm iface").
#pragma once

namespace rapidsmpf::detail {

// Lets the kernel drop empty datagrams to such sockets of this process; UCX sends none. Does nothing where the kernel
// does not allow it.
void drop_empty_wakeups() noexcept;

}  // namespace rapidsmpf::detail
