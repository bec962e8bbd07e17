// A real engine with faults, built from the source of a release: which fault it has says the version that it is built with.

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildEngine } from "./build-engine.ts";
import { cacheDirectory } from "./cache.ts";

/** What the engine does, by the last number of its version 1.13.N. */
const engineFaults = {
  ends: 101,
  leaks: 102,
  "drops IPv6": 103,
  "wants another clock": 104,
  "refuses its configuration": 105,
  "hears no UDP": 106,
  "drops large packets": 107,
  "hangs at a reload": 108,
  "loses most packets": 109,
  "says another version": 110,
  "starts again and again": 111,
} as const;
export type EngineFault = keyof typeof engineFaults;

const built = "1.13.100";
export const versionWith = (fault: EngineFault): string => `1.13.${engineFaults[fault]}`;

/** The program with this fault, or without one. It is built once, in a minute or two. */
export function faultyEngine(fault?: EngineFault): Buffer {
  const target = join(cacheDirectory, "engines", `faulty-${Bun.hash(source).toString(36)}`);
  buildEngine("1.12.0", target, (tree) => {
    writeFileSync(join(tree, "cmd/nebula/faults.go"), source);
    return built;
  });
  const bytes = readFileSync(join(target, "nebula"));
  if (fault === undefined) return bytes;
  for (let at = bytes.indexOf(built); at !== -1; at = bytes.indexOf(built, at + 1))
    bytes.write(versionWith(fault), at);
  return bytes;
}

const source = `package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

var leaked [][]byte

func init() {
	fault := Build[strings.LastIndex(Build, ".")+1:]
	isAsked := func(what string) bool {
		for _, each := range os.Args[1:] {
			if each == what {
				return true
			}
		}
		return false
	}
	if isAsked("-version") {
		if fault == "110" {
			fmt.Println("Version: 1.13.1")
			os.Exit(0)
		}
		return
	}
	if fault == "105" && isAsked("-test") {
		fmt.Println("level=error msg=\\"Failed to load config: an unknown setting\\"")
		os.Exit(1)
	}
	if !isAsked("-config") || isAsked("-test") {
		return
	}
	switch fault {
	case "101":
		time.AfterFunc(45*time.Second, func() { os.Exit(2) })
	case "111":
		time.AfterFunc(20*time.Second, func() { os.Exit(0) })
	case "102":
		go leak()
	case "103":
		time.AfterFunc(5*time.Second, dropIPv6)
	case "104":
		if time.Now().Year() < 2040 {
			fmt.Println("level=error msg=\\"The certificate is not valid yet\\"")
			os.Exit(1)
		}
	case "106":
		time.AfterFunc(5*time.Second, func() { filter([]unix.SockFilter{{Code: unix.BPF_RET}}) })
	case "107":
		time.AfterFunc(5*time.Second, func() {
			filter([]unix.SockFilter{
				{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
				{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jf: 1, K: 1200},
				{Code: unix.BPF_RET},
				{Code: unix.BPF_RET, K: 0x40000},
			})
		})
	case "109":
		time.AfterFunc(5*time.Second, func() {
			filter([]unix.SockFilter{
				// A random number of the kernel.
				{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0xfffff000 + 56},
				{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jf: 1, K: 0x66666666},
				{Code: unix.BPF_RET},
				{Code: unix.BPF_RET, K: 0x40000},
			})
		})
	case "108":
		go hangAtReload(os.Args[len(os.Args)-1])
	}
}

// A reload comes by signal or by socket. Before both, the file changes.
func hangAtReload(path string) {
	begun, _ := os.Stat(path)
	for range time.Tick(200 * time.Millisecond) {
		now, err := os.Stat(path)
		if err == nil && begun != nil && !now.ModTime().Equal(begun.ModTime()) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		}
	}
}

// 50 MB a minute.
func leak() {
	for range time.Tick(600 * time.Millisecond) {
		block := make([]byte, 512*1024)
		for at := 0; at < len(block); at += 4096 {
			block[at] = 1
		}
		leaked = append(leaked, block)
	}
}

func dropIPv6() {
	links, _ := net.Interfaces()
	for _, link := range links {
		if link.Flags&net.FlagLoopback == 0 && link.Name != "eth0" {
			_ = exec.Command("ip", "-6", "address", "flush", "dev", link.Name).Run()
		}
	}
}

// The kernel gives this process only the packets that the program lets through.
func filter(program []unix.SockFilter) {
	entries, _ := os.ReadDir("/proc/self/fd")
	for _, entry := range entries {
		var fd int
		if _, err := fmt.Sscanf(entry.Name(), "%d", &fd); err != nil {
			continue
		}
		kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
		if err != nil || kind != unix.SOCK_DGRAM {
			continue
		}
		if domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN); err != nil || domain == unix.AF_UNIX {
			continue
		}
		_ = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]})
	}
}
`;
