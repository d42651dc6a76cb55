#pragma once

namespace weft {

/// How many threads a rank's operators use where so many ranks share so many cores: all cores are used, none twice.
int threads_per_rank(int num_cores, int ranks_of_host);

/// Has the operators of the calling thread use so many threads, this one included. OpenMP keeps the number by thread,
/// so every thread rank calls this when it begins.
void use_rank_threads(int num_threads);

}  // namespace weft
