// Shuffles between processes, measured; started by rrun, and by `python -m benchmarks.shuffle` beside others.
//
//   rrun -n 2 bench_shuffle packed --chunks 64KiB,8MiB --partitions 1,100 --bytes 256MiB --output results.jsonl
#include <exception>
#include <functional>
#include <iostream>
#include <map>
#include <string>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/core/detail/option_table.hpp>

#include "cases.hpp"

namespace {

// The ways in which payloads travel that this build can be told to take, one a line.
void print_transports() {
    std::cout << "messages\n";
    for (auto const& info : rapidsmpf::config::option_table) {
        if (info.key == "peer_memory") {
            std::cout << "peer_memory\n";
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    using namespace rapidsmpf;
    using namespace rapidsmpf::bench;
    try {
        Arguments const arguments{argc, argv};
        if (arguments.name() == "transports") {
            print_transports();
            return 0;
        }
        std::map<std::string, std::function<void(Job&, Arguments const&)>> const cases{
            {"packed", packed}, {"table", table},     {"latency", latency},           {"wait", wait},
            {"skew", skew},     {"pattern", pattern}, {"device_table", device_table},
        };
        auto const found = cases.find(arguments.name());
        if (found == cases.end()) {
            throw std::invalid_argument{"there is no case " + arguments.name()};
        }
        Job job{config::Options{config::get_environment_variables()}, arguments.text("output", "")};
        found->second(job, arguments);
        job.barrier();
        return 0;
    } catch (std::exception const& error) {
        bootstrap::report_abort(error.what());
        std::cerr << "bench_shuffle: " << error.what() << std::endl;
        return 1;
    }
}
