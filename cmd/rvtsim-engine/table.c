//go:build linux && cgo

/* The table that the preload library finds by name. */
#include "engine.h"
#include "_cgo_export.h"

struct rvtsim_host rvtsim_host;
struct rvtsim_bell rvtsim_bell;

static int start(const struct rvtsim_host *host, const void *grant, size_t n, int socket, int port, char name[RVTSIM_ENGINE_NAME])
{
	rvtsim_host = *host;
	return engineStart((void *)grant, n, socket, port, name);
}

static int command(int index, int op, uint64_t arg, const void *data, size_t n, void *out, size_t room, int *files, int *nfiles)
{
	return engineCommand(index, op, arg, (void *)data, n, out, room, files, nfiles);
}

__attribute__((visibility("default"))) const struct rvtsim_engine rvtsim_engine_table = {
	.abi = RVTSIM_ENGINE_ABI,
	.start = start,
	.open = engineOpen,
	.close = engineClose,
	.command = command,
	.doorbell = engineDoorbell,
	.progress = engineProgress,
	.settle = engineSettle,
	.leave = engineLeave,
	.bell = &rvtsim_bell,
};
