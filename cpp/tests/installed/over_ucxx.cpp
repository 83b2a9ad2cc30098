// Ranks under rrun add up their numbers over UCXX and shuffle one chunk each.
#include <cstdint>
#include <exception>
#include <functional>
#include <iostream>
#include <vector>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/coll/allreduce.hpp>
#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

int main() {
    try {
        auto const communicator = rapidsmpf::bootstrap::create_ucxx_comm();
        auto const nranks = communicator->nranks();
        auto const sum = rapidsmpf::coll::allreduce(communicator, 1, communicator->rank(), std::plus<>{});
        auto const resource = rapidsmpf::BufferResource::make();
        rapidsmpf::Shuffler shuffler{communicator, 2, static_cast<std::uint32_t>(nranks), resource};
        for (rapidsmpf::PartitionId partition = 0; partition < shuffler.total_partitions(); ++partition) {
            std::vector<std::uint8_t> from{static_cast<std::uint8_t>(communicator->rank())};
            shuffler.insert(
                partition,
                rapidsmpf::PackedData{std::move(from), resource->allocate(rapidsmpf::MemoryType::HOST, 0)});
        }
        shuffler.insert_finished();
        auto const partition = shuffler.wait_any();
        auto const chunks = shuffler.extract(partition).size();
        shuffler.shutdown();
        std::cout << "rank " + std::to_string(communicator->rank()) + " of " + std::to_string(nranks)
                         + ": sum " + std::to_string(sum) + ", chunks " + std::to_string(chunks) + "\n";
        return 0;
    } catch (std::exception const& error) {
        rapidsmpf::bootstrap::report_abort(error.what());
        std::cerr << error.what() << '\n';
        return 1;
    }
}
