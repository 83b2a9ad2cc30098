// rrun: starts the ranks of a job on this machine (see help_text()).
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>

#include "job.hpp"
#include "options.hpp"
#include "process.hpp"

int main(int argc, char** argv) {
    using namespace rapidsmpf::rrun;
    constexpr int usage_exit_code = 2;
    try {
        auto const arguments = std::span<char const* const>{argv, static_cast<std::size_t>(argc)};
        auto const command_line = parse_command_line(arguments.subspan(argc > 0 ? 1 : 0));
        if (command_line.action == Action::show_help) {
            std::cout << help_text();
            return EXIT_SUCCESS;
        }
        if (command_line.action == Action::show_version) {
            std::cout << "rrun " RAPIDSMPF_VERSION "\n";
            return EXIT_SUCCESS;
        }
        return run_job(command_line);
    } catch (UsageError const& error) {
        std::cerr << "rrun: " << error.what() << "\nTry 'rrun --help'.\n";
        return usage_exit_code;
    } catch (ExecError const& error) {
        std::cerr << "rrun: " << error.what() << '\n';
        return error.exit_code();
    } catch (std::exception const& error) {
        std::cerr << "rrun: " << error.what() << '\n';
        return EXIT_FAILURE;
    }
}
