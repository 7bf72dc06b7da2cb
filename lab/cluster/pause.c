/* First process of a node and of a pod's sandbox: reaps what is orphaned, sleeps, ends on SIGTERM and SIGINT. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void stop(int number) { (void)number; _exit(0); }
static void reap(int number) { (void)number; while (waitpid(-1, NULL, WNOHANG) > 0) {} }

int main(void) {
    struct sigaction stops = {.sa_handler = stop}, reaps = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &stops, NULL) || sigaction(SIGTERM, &stops, NULL) || sigaction(SIGCHLD, &reaps, NULL))
        return 1;
    for (;;) pause();
}
