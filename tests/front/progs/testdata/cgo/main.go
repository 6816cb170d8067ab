// Cgo is a Go program that is linked with libibverbs. With an engine inside there are two
// Go runtimes in one process: their signals, stacks and threads must not get mixed up.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../..
#cgo LDFLAGS: -libverbs
#include "common.h"

static struct ibv_context *ctx;
static struct pair pair;
static __thread struct pair own;

static void begin(void) { ctx = open_rvt0(); make_pair(&pair, ctx, 0); }
static void talk(int i) { message(&pair, (unsigned char)i); }
static void talk_here(int i)
{
	if (!own.ctx)
		make_pair(&own, ctx, 0);
	message(&own, (unsigned char)i);
}
static void end(void) { destroy_pair(&pair); }
*/
import "C"

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"syscall"
)

var garbage []byte

func main() {
	C.begin()
	got := make(chan os.Signal, 1)
	signal.Notify(got, syscall.SIGUSR1)
	for i := range 1000 {
		C.talk(C.int(i%100 + 1))
		garbage = make([]byte, 100_000)
		if i%100 == 0 {
			runtime.GC()
			_ = syscall.Kill(os.Getpid(), syscall.SIGUSR1)
		}
	}
	<-got
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			runtime.LockOSThread()
			for i := range 300 {
				C.talk_here(C.int(i%100 + 1))
				_ = make([]byte, 50_000)
			}
		})
	}
	fault()
	wg.Wait()
	out, err := exec.Command("echo", "child").Output()
	C.end()
	fmt.Println(string(out), err, "ok")
}

// fault is one that this runtime turns into a panic.
func fault() {
	defer func() { fmt.Println("recovered:", recover()) }()
	var p *int
	*p = 1
}
