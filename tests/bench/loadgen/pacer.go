package main

import (
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const prSetTimerSlack = 29

// pacer waits for points in time on a thread of its own, asleep in the kernel. Go's own timers are rounded up to
// 1 ms when nothing else is runnable, and the kernel's default slack is 50 us: both would show as latency.
type pacer struct{}

func newPacer() *pacer {
	runtime.LockOSThread()
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, prSetTimerSlack, 1, 0)
	return &pacer{}
}

func (*pacer) waitUntil(due time.Time) {
	for {
		left := time.Until(due)
		if left <= 0 {
			return
		}
		spec := syscall.NsecToTimespec(left.Nanoseconds())
		_, _, _ = syscall.Syscall(syscall.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&spec)), 0, 0)
	}
}
