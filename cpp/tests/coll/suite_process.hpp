// Runs the collective suite on a communicator of real processes.
#pragma once

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <rapidsmpf/exchange/detail/operation_dispatcher.hpp>

#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

inline std::vector<Body> chosen(std::vector<std::string> const& names) {
    std::vector<Body> chosen;
    std::copy_if(bodies().begin(), bodies().end(), std::back_inserter(chosen), [&](Body const& body) {
        return names.empty() || std::find(names.begin(), names.end(), body.name) != names.end();
    });
    return chosen;
}

// Operations close by themselves once all ranks are through: none may be left over.
inline void all_are_closed(std::shared_ptr<Communicator> const& comm) {
    auto const dispatcher = exchange::OperationDispatcher::of(*comm);
    auto const deadline = std::chrono::steady_clock::now() + patience;
    while (dispatcher->open_operations_for_testing() > 0) {
        SUITE_CHECK(std::chrono::steady_clock::now() < deadline);
        std::this_thread::yield();
    }
}

// Runs the bodies of these names (none: all), one after the other; returns the program's exit code.
inline int run_bodies(std::shared_ptr<Communicator> const& comm, std::vector<std::string> const& names) {
    auto const selected = chosen(names);
    if (selected.empty() || (!names.empty() && selected.size() != names.size())) {
        std::cerr << "there is no such body\n";
        return 2;
    }
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

}  // namespace rapidsmpf::suite
