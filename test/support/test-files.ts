// What the runner knows about test files: which there are, which take long, which cannot run beside others, and which
// are known to fail at times. Imports nothing that `bun install` brings.

import { join } from "node:path";

export type Kind = "unit" | "e2e" | "soak";

const tests = join(import.meta.dir, "..");

/** Files that share a process: starting one and loading the server costs more than most unit tests. */
const filesPerProcess = { unit: 8, e2e: 1, soak: 1 };

/**
 * What each process runs, as paths below the root of the repository: the longest files first, so that none is left over
 * at the end, each by itself; then the others.
 */
export function batchesOf(kind: Kind): string[][] {
  const all = [...new Bun.Glob("**/*.test.ts").scanSync(tests)].sort();
  const files = all.filter((file) => (/^(e2e|soak)\//.exec(file)?.[1] ?? "unit") === kind);
  const first = longest.filter((file) => files.includes(file));
  const rest = files.filter((file) => !first.includes(file));
  const single = rest.filter((file) => file in alone || file in unsteady);
  const small = rest.filter((file) => !single.includes(file));
  const batches = [...first, ...single].map((file) => [file]);
  const size = filesPerProcess[kind];
  for (let at = 0; at < small.length; at += size) batches.push(small.slice(at, at + size));
  return batches;
}

/** Started first, in this order: the files that take more than 6 s, or 30 s end to end. */
export const longest: readonly string[] = [
  "server/webhooks/webhooks.test.ts",
  "server/config/feed.test.ts",
  "install.test.ts",
  "runtime-words.test.ts",
  "server/metrics/operation.test.ts",
  "node/contact/check-auth.test.ts",
  "daemon/desired-histories.test.ts",
  "daemon/supervisor.test.ts",
  "release/minisign.test.ts",
  "server/listening.test.ts",
  "server/nodes/register.test.ts",
  "cli/golden.test.ts",
  "server/store/postgres.test.ts",
  "daemon/ipc/clients.test.ts",
  "server/contract.test.ts",
  "server/people/sessions.test.ts",
  "e2e/self-update-trials.test.ts",
  "e2e/install-machine.test.ts",
  "e2e/dry-run.test.ts",
  "e2e/postgres-api.test.ts",
  "e2e/release.test.ts",
  "e2e/nebula-cert.test.ts",
  "e2e/ca-rotation.test.ts",
  "e2e/renewal.test.ts",
  "e2e/desired-state.test.ts",
  "e2e/systemd-kills.test.ts",
  "e2e/systemd-server.test.ts",
  "e2e/self-update.test.ts",
  "e2e/windows.test.ts",
  "e2e/arm64.test.ts",
  "e2e/daemon.test.ts",
  "e2e/host-names.test.ts",
  "e2e/faults.test.ts",
  "e2e/killed.test.ts",
  "e2e/killed-renames.test.ts",
  "e2e/daemon-commands.test.ts",
];

/** Files that run alone, each with the reason. All others run side by side. */
export const alone: Readonly<Record<string, string>> = {
  "e2e/node-bars.test.ts": "measures memory and time of 100 organizations against bars",
  "e2e/revocation.test.ts": "measures how soon a revoked node is cut off",
  "e2e/daemon-socket.test.ts": "measures how soon the daemon answers in a flood of requests",
  "e2e/postgres.test.ts": "measures how soon a restarted database is used again",
};

/** Files that are run again when they fail, each with the cause. At most three; a file that is not listed fails at once. */
export const unsteady: Readonly<Record<string, string>> = {};

/** Programs of Debian packages that unit tests call. */
export const unitPrograms: readonly string[] = [
  "/usr/bin/nebula",
  "/usr/bin/nebula-cert",
  "/usr/bin/openssl",
  "/usr/bin/bsdtar",
  "/usr/bin/xz",
  "/usr/bin/curl",
  "/usr/bin/wget",
  "/usr/bin/ps",
  "/usr/bin/minisign",
  "/usr/bin/systemd-analyze",
  "/usr/bin/plistutil",
  "/usr/bin/xmllint",
  "/usr/bin/shellcheck",
  "/usr/bin/busybox",
  "/usr/bin/mksh",
  "/usr/bin/posh",
];
