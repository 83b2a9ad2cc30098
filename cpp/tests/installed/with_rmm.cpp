// Memory of a BufferResource seen as an RMM resource, and counted.
#include <cstddef>
#include <iostream>
#include <memory>

#include <rapidsmpf/memory/memory_resource.hpp>
#include <rapidsmpf/memory/resource_adaptor.hpp>
#include <rapidsmpf/memory/rmm_resource.hpp>

int main() {
    auto const adaptor =
        std::make_shared<rapidsmpf::RmmResourceAdaptor>(std::make_shared<rapidsmpf::HostMemoryResource>());
    rapidsmpf::RmmView view{adaptor};
    rmm::device_async_resource_ref const resource{view};
    void* const block = view.allocate_sync(std::size_t{1} << 20);
    std::cout << "allocated " << adaptor->current_allocated() << '\n';
    view.deallocate_sync(block, std::size_t{1} << 20);
    std::cout << "left " << adaptor->current_allocated() << '\n';
    return 0;
}
