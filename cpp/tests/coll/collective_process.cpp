// The collective suite between real processes, over UCXX: each rank of a job started by rrun runs every body
// on one communicator. Arguments: the names of the bodies to run; none: all.
#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include <rapidsmpf/bootstrap/bootstrap.hpp>
#include <rapidsmpf/coll/allgather.hpp>
#include <rapidsmpf/exchange/hub.hpp>

#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {
namespace {

std::vector<Body> chosen(std::vector<std::string> const& names) {
    std::vector<Body> chosen;
    std::copy_if(bodies().begin(), bodies().end(), std::back_inserter(chosen), [&](Body const& body) {
        return names.empty() || std::find(names.begin(), names.end(), body.name) != names.end();
    });
    return chosen;
}

// Operations close by themselves once all ranks are through: none may be left over.
void all_are_closed(std::shared_ptr<Communicator> const& comm) {
    auto const hub = exchange::Hub::of(*comm);
    auto const deadline = std::chrono::steady_clock::now() + patience;
    while (hub->open_operations() > 0) {
        SUITE_CHECK(std::chrono::steady_clock::now() < deadline);
        std::this_thread::yield();
    }
}

int run(std::vector<std::string> const& names) {
    auto const selected = chosen(names);
    if (selected.empty() || (!names.empty() && selected.size() != names.size())) {
        std::cerr << "there is no such body\n";
        return 2;
    }
    std::shared_ptr<Communicator> const comm = bootstrap::create_ucxx_comm();
    for (auto const& body : selected) {
        auto const start = std::chrono::steady_clock::now();
        try {
            body.run(comm);
            all_are_closed(comm);
        } catch (RankFailedError const& error) {
            std::cerr << body.name << ": " << error.what() << std::endl;
            return 1;
        } catch (std::exception const& error) {
            std::cerr << body.name << ": " << error.what() << std::endl;
            comm->abort(body.name + ": " + error.what());
            return 1;
        }
        if (comm->rank() == 0) {
            auto const took = std::chrono::duration_cast<std::chrono::milliseconds>(
                std::chrono::steady_clock::now() - start);
            std::cout << "ok " << body.name << " (" << took.count() << " ms)" << std::endl;
        }
    }
    return 0;
}

}  // namespace
}  // namespace rapidsmpf::suite

int main(int argc, char** argv) {
    try {
        return rapidsmpf::suite::run({argv + 1, argv + argc});
    } catch (std::exception const& error) {
        std::cerr << "cannot start: " << error.what() << std::endl;
        return 1;
    }
}
