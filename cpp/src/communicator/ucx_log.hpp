// What UCX may log, and so do, while a communicator lives.
//
// UCX logs through a stack of handlers of the process, and a message of level FATAL ends the process: by default,
// when it reads by CMA the memory of a peer that has just died. A handler in front of UCX's own turns that one
// into nothing; the transfer then fails as any other. The same handler drops the complaint that the shared memory of
// a peer is gone before a connection reached it: why the peer has ended is told by the job. The state is the
// process's because UCX's is.
#pragma once

namespace rapidsmpf::detail {

// Installs the handler, once; it stays for the life of the process.
void survive_dead_peers();

// While one lives, what UCX says of a worker that is destroyed after a failure is dropped: that the memory of a dead
// peer is gone, and that transfers with it have not ended.
class QuietUcxTeardown {
  public:
    QuietUcxTeardown();
    ~QuietUcxTeardown();
    QuietUcxTeardown(QuietUcxTeardown const&) = delete;
    QuietUcxTeardown& operator=(QuietUcxTeardown const&) = delete;
};

}  // namespace rapidsmpf::detail
