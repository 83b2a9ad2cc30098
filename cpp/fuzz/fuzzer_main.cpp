// Between libFuzzer and a fuzzer. With RAPIDSMPF_FUZZ_SEEDS set to a folder, the program writes its seeds there and ends.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "fuzzer.hpp"

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
    auto const* const folder = std::getenv("RAPIDSMPF_FUZZ_SEEDS");
    if (folder == nullptr) {
        return 0;
    }
    std::size_t number = 0;
    for (auto const& seed : rapidsmpf::fuzz::seeds()) {
        auto const path = std::filesystem::path{folder} / ("seed-" + std::to_string(number++));
        std::ofstream file{path, std::ios::binary};
        file.write(reinterpret_cast<char const*>(seed.data()), static_cast<std::streamsize>(seed.size()));
        if (!file.flush()) {
            std::cerr << "cannot write " << path << "\n";
            std::exit(1);
        }
    }
    std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    rapidsmpf::fuzz::read_input({data, size});
    return 0;
}
