// Builds upstream releases of the engine for tests from the Go module proxy, with checksums that Go verifies. Any Go with
// modules works, also Debian's: it downloads the required toolchain. Never for shipping.

import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { downloaded, run, withToolchain, type Run } from "./go-toolchain.ts";
import { moveUnlessThere } from "./packages.ts";

const module = "github.com/slackhq/nebula";
const programs = ["nebula", "nebula-cert"];

/** The releases that this file can build, with the required changes of the source. */
const preparations = { "1.10.3": () => {}, "1.12.0": prepare112 } as const;
export type Release = keyof typeof preparations;

/**
 * Builds the release in `target` if it is missing, in a minute or two. Concurrent test runs are safe. `change`: of the source;
 * returns the version that the programs say.
 */
export function buildEngine(version: Release, target: string, change?: (source: string) => string): void {
  if (existsSync(join(target, "nebula"))) return;
  const work = mkdtempSync(join(tmpdir(), "agent-engine-"));
  mkdirSync(dirname(target), { recursive: true });
  const beside = mkdtempSync(join(dirname(target), "build-"));
  try {
    const run = withToolchain(work);
    const source = join(work, "source");
    cpSync(downloaded(`${module}@v${version}`, work, run), source, { recursive: true });
    run(["chmod", "-R", "u+w", source], work);
    preparations[version](source, run);
    const said = change?.(source) ?? version;
    for (const each of programs) {
      const flags = ["-trimpath", "-ldflags", `-s -w -X main.Build=${said}`];
      run(["go", "build", ...flags, "-o", join(beside, each), `./cmd/${each}`], source);
    }
    chmodSync(beside, 0o755);
    moveUnlessThere(beside, target);
  } finally {
    run(["chmod", "-R", "u+w", work], tmpdir());
    for (const each of [work, beside]) rmSync(each, { recursive: true, force: true });
  }
}

/** The proxy lacks two modules of 1.12.0: a fork of netlink, and one that sets name servers. */
function prepare112(source: string, run: Run): void {
  const [fork, original] = ["github.com/DefinedNet/netlink", "github.com/vishvananda/netlink"];
  const files = run(["grep", "-rl", "--include=*.go", fork, "."], source).trim().split("\n");
  run(["sed", "-i", `s#${fork} v1.3.2-dn.1#${original} v1.3.1#`, "go.mod"], source);
  run(["sed", "-i", `s#${fork}#${original}#`, ...files], source);
  const standIn = join(source, "../dnsconfig");
  mkdirSync(standIn);
  writeFileSync(join(standIn, "go.mod"), "module github.com/DefinedNet/dnsconfig\n\ngo 1.25\n");
  writeFileSync(join(standIn, "dnsconfig.go"), dnsconfig);
  const gvisor = "gvisor.dev/gvisor";
  const replaced = "github.com/DefinedNet/dnsconfig=../dnsconfig";
  run(["go", "mod", "edit", "-replace", replaced, "-droprequire", gvisor], source);
  run(["go", "mod", "edit", "-require", `${gvisor}@v0.0.0-20240423190808-9d7a357edefe`], source);
}

/** That module is only used on macOS and Windows. */
const dnsconfig = `package dnsconfig

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
)

type Config struct {
	Nameservers                 []netip.Addr
	SearchDomains, MatchDomains []string
}

func (Config) Validate() error { return nil }
func (Config) IsSplit() bool   { return false }

type BackendKind int

const (
	BackendAuto BackendKind = iota
	BackendNoop
)

type Options struct {
	Identity, InterfaceName string
	Logger                  *slog.Logger
	ForceBackend            BackendKind
}

type Manager struct{}

func New(context.Context, Options) (*Manager, error) { return &Manager{}, nil }
func (*Manager) Clear() error                        { return nil }
func (*Manager) Set(Config) error                    { return nil }
func (*Manager) Close() error                        { return nil }
func ValidateIdentity(string) error                  { return nil }

var (
	ErrConfigurationDeclined = errors.New("declined")
	ErrInterfaceRequired     = errors.New("no interface")
)
`;
