// Two processes that write into each other's memory, run by rrun. What the argument says:
//   both   payloads travel through peer memory in one communicator, as messages in another; the statistics show it.
//   kill   rank 1 is killed in the middle of a write into the memory of rank 0: which raises RankFailedError, and has all
//          of its memory back.
// Rank 0 says what it has seen; the tests look for that.
#include <algorithm>
#include <csignal>
#include <iostream>
#include <string>
#include <thread>

#include <sys/mman.h>
#include <unistd.h>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/device/detail/shared_memory.hpp>

#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {
namespace {

using device::SharedMemory;
constexpr std::size_t MiB = std::size_t{1} << 20U;

std::shared_ptr<BufferResource> counting(std::shared_ptr<Statistics> statistics) {
    BufferResource::Settings settings;
    settings.statistics = std::move(statistics);
    return BufferResource::make(std::move(settings));
}

std::size_t moved(Statistics const& statistics, std::string const& name) {
    auto const names = statistics.names();
    bool const any = std::find(names.begin(), names.end(), name) != names.end();
    return any ? static_cast<std::size_t>(statistics.get(name).value) : 0;
}

// Chunks of many sizes to the other rank; returns what was moved through peer memory and as messages.
std::pair<std::size_t, std::size_t> exchange(std::shared_ptr<Communicator> const& comm) {
    auto const statistics = std::make_shared<Statistics>();
    auto const br = counting(statistics);
    auto const other = static_cast<coll::PartitionId>(1 - comm->rank());
    coll::Shuffler shuffler{comm, 1, 2, br};
    std::size_t count = 0;
    for (std::size_t size = 1; size <= 8 * MiB; size = size * 3 + 1) {
        for (int i = 0; i < 3; ++i) {
            shuffler.insert(other, make_chunk(*br, 1, comm->rank(), other, count++, size));
        }
    }
    shuffler.insert_finished();
    auto const mine = static_cast<coll::PartitionId>(comm->rank());
    shuffler.wait_on(mine, patience);
    auto const chunks = shuffler.extract(mine);
    SUITE_CHECK(chunks.size() == count);
    for (auto const& chunk : chunks) {
        SUITE_CHECK(check_chunk(chunk).partition == mine);
    }
    shuffler.shutdown(patience);
    return {moved(*statistics, "exchange-peer-memory-bytes"), moved(*statistics, "exchange-message-bytes")};
}

std::string both() {
    for (auto const* const kind : {"auto", "off"}) {
        auto const comm =
            bootstrap::create_ucxx_comm(config::Options{config::Strings{{"peer_memory", kind}}});
        auto const [peer_memory, messages] = exchange(comm);
        SUITE_CHECK((peer_memory > 10 * MiB) == (std::string{kind} == "auto"));
        SUITE_CHECK((messages > 10 * MiB) == (std::string{kind} == "off"));
    }
    return "payloads travelled both ways";
}

void die(int /*signal*/) {
    ::raise(SIGKILL);
}

// Inserts a chunk that has an unreadable page in it: the rank that copies the chunk is killed by SIGKILL.
void insert_deadly_chunk(coll::Shuffler& shuffler, BufferResource& br) {
    std::signal(SIGSEGV, die);
    constexpr std::size_t size = 16 * MiB;
    void* const bytes = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SUITE_CHECK(bytes != MAP_FAILED);
    SUITE_CHECK(::mprotect(static_cast<std::byte*>(bytes) + size / 2 + 12'288, 4096, PROT_NONE) == 0);
    auto owner = std::shared_ptr<void>(bytes, [](void* pointer) { ::munmap(pointer, size); });
    auto buffer = br.adopt(MemoryType::DEVICE, static_cast<std::byte*>(bytes), size, std::move(owner));
    shuffler.insert(0, PackedData{{1}, std::move(buffer)});
}

std::string kill() {
    auto const comm = bootstrap::create_ucxx_comm();
    (void)exchange(comm);
    auto const br = BufferResource::make();
    auto const used = SharedMemory::used() - SharedMemory::quarantined_for_testing();
    coll::Shuffler shuffler{comm, 2, 2, br};
    try {
        if (comm->rank() == 1) {
            insert_deadly_chunk(shuffler, *br);
        }
        shuffler.wait_on(static_cast<coll::PartitionId>(comm->rank()), patience);
        return "nothing was thrown";
    } catch (RankFailedError const& error) {
        SUITE_CHECK(error.rank() == 1);
    }
    shuffler.shutdown();
    // The other process is gone: what it was given to write to comes back.
    while (SharedMemory::quarantined_for_testing() > 0 || SharedMemory::used() > used
           || br->memory_used(MemoryType::DEVICE) > 0) {
        std::this_thread::yield();
    }
    return "killed in a write, nothing is left";
}

}  // namespace
}  // namespace rapidsmpf::suite

int main(int argc, char** argv) {
    using namespace rapidsmpf;
    try {
        auto const said = std::string{argc > 1 ? argv[1] : ""} == "kill" ? suite::kill() : suite::both();
        if (bootstrap::get_rank() == 0) {
            std::cout << "rank 0: " << said << std::endl;
        }
        return 0;
    } catch (std::exception const& error) {
        std::cerr << error.what() << std::endl;
        return 1;
    }
}
