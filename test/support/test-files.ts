// What the runner knows about test files: which there are, which take long, which cannot run beside others, and which
// need not run where nothing changed that they are about. Imports nothing that `bun install` brings.

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

export type Kind = "unit" | "e2e" | "soak";

const tests = join(import.meta.dir, "..");
const root = join(tests, "..");

/**
 * Files that share a process: six files of server tests in one process take less than half the processor time that they
 * take in six, because the server is loaded and compiled once.
 */
const filesPerProcess = { unit: 20, e2e: 1, soak: 1 };

const allFiles = () => [...new Bun.Glob("**/*.test.ts").scanSync(tests)].sort();

export const kindOf = (file: string): Kind =>
  file.startsWith("e2e/") ? "e2e" : file.startsWith("soak/") ? "soak" : "unit";

/** All files of a kind. */
export const filesOf = (kind: Kind): string[] => allFiles().filter((file) => kindOf(file) === kind);

/** Files that measure the memory of their process, which no other file shares. */
const ofOwnMemory = ["node/contact/requests/client.test.ts"];

/**
 * What each process runs of these files of one kind, as paths below test/: those that run alone or measure memory by themselves, the others
 * dealt out, the longest first, so that no process has many of these, and none of them begins at the end.
 */
export function batchesOf(kind: Kind, files: readonly string[] = filesOf(kind)): string[][] {
  const single = files.filter((file) => file in alone || ofOwnMemory.includes(file));
  const first = longest.filter((file) => files.includes(file) && !single.includes(file));
  const dealt = [...first, ...files.filter((file) => !first.includes(file) && !single.includes(file))];
  const count = Math.ceil(dealt.length / filesPerProcess[kind]);
  const batches = Array.from({ length: count }, (_, at) => dealt.filter((_, place) => place % count === at));
  return [...batches, ...single.map((file) => [file])];
}

/** The name under which `bySources` has the older engines of all files that run on each engine. */
export const olderEngines = "older-engines";

const certificates = [
  "src/pki/**",
  "src/server/{certificates,rollout}/**",
  "src/server/background.ts",
  "src/server/store/clock.ts",
  "src/node/{contact,engine}/**",
];
const builds = ["build.ts", "package.json", "packaging/**", "src/{platform,release}/**"];
const updates = ["install", "packaging/**", "src/{platform,release}/**", "src/node/{engine,update}/**"];
const names = ["src/node/names/**", "src/platform/**", "src/daemon/**"];
const files = ["src/{base,engine,protocol}/**", "src/node/{enroll,files,update}/**", "src/platform/**"];
const health = ["src/daemon/**", "src/node/{contact,engine,health}/**"];
/** What nodes get for their engines, and what becomes of it. */
const settings = [
  "src/{engine,pki,protocol}/**",
  "src/server/{config,nodes,paths}/**",
  "src/daemon/**",
  "src/node/{contact,engine,files}/**",
];
const portMapping = [
  "src/base/datagrams/**",
  "src/cli/node/edge.ts",
  "src/node/edge/{keep-edge,parts,undo-edge}.ts",
  "src/node/edge/port-mapping/**",
  "src/node/files/mapping-state.ts",
  "src/node/health/apply-changes.ts",
  "test/support/port-mapper.ts",
];
const pages = ["src/api/**", "src/console/**", "src/server/**"];
const store = ["src/server/store/**", "test/support/postgres.ts"];
/** Networks behind nodes, and exits. */
const routes = [
  "src/{base,engine}/**",
  "src/protocol/routing/**",
  "src/node/{edge,exit,files,health,routing}/**",
  "src/platform/**",
  "src/server/{config,nodes,paths}/**",
];
const policy = [
  "src/{engine,protocol}/**",
  "src/server/{config,policy,policy-files}/**",
  "src/node/files/**",
];
const seals = [
  "docs/security.md",
  "src/cli/admin/seal/**",
  "src/cli/ask.ts",
  "src/{pki,protocol}/**",
  "src/server/{certificates,config}/**",
  "src/node/{contact,files}/**",
];
const postgresApi = "e2e/postgres-api.test.ts";
/** Random histories and long lives of the server, which any of its rules may break. */
const server = ["src/{api,base,pki,protocol,server}/**"];
/** Likewise of a node. */
const node = ["src/{base,daemon,engine,node,pki,platform,protocol}/**"];
/** The installer, as shells run it. */
const installer = ["install", "src/release/**", "test/support/install-script.ts"];
/** Folders of src/server that have tests in a folder of the same name. */
const serverFolders = readdirSync(join(tests, "server"))
  .filter((folder) => !folder.includes(".") && existsSync(join(root, "src/server", folder)))
  .sort();
/** The part of the tests on PostgreSQL that a file below test/server is in: its folder, or `rest`. */
export function postgresPart(file: string): string {
  const folder = /test\/server\/([^/]+)\//.exec(file)?.[1] ?? "";
  return `${postgresApi}#${serverFolders.includes(folder) ? folder : "rest"}`;
}

/**
 * Expensive tests, each with the sources that it is about: a whole file, or a part of one after `#`. They run where one of
 * their sources changed since they passed last: test/last-soak has a digest of these, so no history is needed.
 * Otherwise only long runs have them.
 */
export const bySources: Readonly<Record<string, readonly string[]>> = {
  [olderEngines]: [
    "src/engine/**",
    "src/pki/**",
    "src/node/{engine,health}/**",
    "src/node/files/granted/**",
    "src/server/config/**",
    "test/support/{engines,build-engine}.ts",
  ],
  "cli/damaged-organization.test.ts": ["src/{base,engine,protocol}/**", "src/{cli,daemon,node}/**"],
  "cli/node/doctor.test.ts": [...node, "src/cli/node/doctor.ts"],
  "daemon/day.test.ts": ["src/{base,engine,protocol}/**", "src/{daemon,node,platform}/**"],
  "daemon/desired-histories.test.ts": ["src/{base,engine,protocol}/**", "src/{daemon,node,platform}/**"],
  "e2e/acme.test.ts": ["src/server/tls/**", "test/support/acme*.ts"],
  "e2e/applied-changes.test.ts": settings,
  "e2e/arm64.test.ts": builds,
  "e2e/musl.test.ts": [...builds, "install"],
  "e2e/asleep.test.ts": health,
  "e2e/broken-disk.test.ts": [...store, "src/server/{backup,http}/**"],
  "e2e/browser-joining.test.ts": pages,
  "e2e/ca-rotation.test.ts": certificates,
  "e2e/certificate-changes.test.ts": certificates,
  "e2e/certificate-kills.test.ts": certificates,
  "e2e/certificate-versions.test.ts": [...certificates, "src/server/config/**"],
  "e2e/clock-jump.test.ts": certificates,
  "e2e/clones.test.ts": [...settings, "src/node/{enroll,health}/**"],
  "e2e/console-access-drafts.test.ts": pages,
  "e2e/console-access.test.ts": pages,
  "e2e/console-account.test.ts": pages,
  "e2e/console-activity.test.ts": pages,
  "e2e/console-away.test.ts": pages,
  "e2e/console-flows.test.ts": pages,
  "e2e/console-joining.test.ts": pages,
  "e2e/console-links.test.ts": pages,
  "e2e/console-needs.test.ts": pages,
  "e2e/console-node-list.test.ts": pages,
  "e2e/console-organization.test.ts": pages,
  "e2e/console-past.test.ts": pages,
  "e2e/console-rollouts.test.ts": pages,
  "e2e/console-standing.test.ts": pages,
  "e2e/console-webhooks.test.ts": pages,
  "e2e/daemon-disk.test.ts": [...files, "src/daemon/**"],
  "e2e/desired-state.test.ts": ["src/daemon/**", "src/node/{contact,engine,files}/**", "src/platform/**"],
  "e2e/doctor.test.ts": [...health, "src/{cli,platform}/**", "src/node/{doctor,files}/**"],
  "e2e/documents.test.ts": ["*.md", "docs/**", "src/cli/**", "test/support/document-blocks.ts"],
  "e2e/dry-run.test.ts": [
    "src/{base,engine,protocol}/**",
    "src/{cli,daemon,node,platform,release}/**",
    "test/support/dry-run.ts",
  ],
  "e2e/engine-in-use.test.ts": [...updates, "src/node/contact/**"],
  "e2e/failover.test.ts": ["docs/several-servers.md", ...store, "src/server/http/**", "src/server/*.ts"],
  "e2e/drills.test.ts": [
    ...health,
    "src/cli/install/{drill-run,order-run}.ts",
    "src/node/{drill,edge}/**",
    "src/platform/nftables.ts",
    "src/protocol/updates/drill.ts",
    "src/server/rollout/{drills,refuse-beside}.ts",
  ],
  "e2e/faults.test.ts": [...files, "src/server/{backup,store}/**"],
  "e2e/healing-loops.test.ts": health,
  "e2e/healing.test.ts": health,
  "e2e/health.test.ts": [...health, "src/cli/**"],
  "e2e/held-faults.test.ts": health,
  "e2e/host-names.test.ts": settings,
  "e2e/image.test.ts": builds,
  "e2e/install-machine.test.ts": [...updates, "src/server/setup.ts"],
  "e2e/junk.test.ts": ["src/daemon/**", "src/node/engine/**"],
  "e2e/killed-renames.test.ts": files,
  "e2e/killed.test.ts": [...files, "src/cli/**", "src/node/contact/**", "src/server/nodes/**"],
  "e2e/lighthouse-restart.test.ts": health,
  "e2e/mach-o.test.ts": builds,
  "e2e/many-machines.test.ts": ["docs/machines.md", "src/cli/**", "src/node/enroll/**"],
  "e2e/nebula-cert.test.ts": ["src/pki/**"],
  "e2e/no-lighthouse.test.ts": [...health, "src/server/paths/**", "src/node/files/**"],
  "e2e/node-image.test.ts": builds,
  "e2e/odd-files.test.ts": files,
  "e2e/offloads.test.ts": [...health, "src/engine/**", "src/node/files/**"],
  "e2e/overlay-install.test.ts": [...updates, "src/cli/**"],
  "e2e/packages.test.ts": [...builds, "install"],
  "e2e/path-reports.test.ts": settings,
  "e2e/policy-random.test.ts": policy,
  "e2e/port-mapping.test.ts": portMapping,
  ...Object.fromEntries(
    serverFolders.map((folder) => [`${postgresApi}#${folder}`, [...store, `src/server/${folder}/**`]]),
  ),
  [`${postgresApi}#rest`]: [
    ...store,
    ...readdirSync(join(root, "src/server"))
      .filter((name) => !serverFolders.includes(name))
      .map((name) => `src/server/${name}${name.endsWith(".ts") ? "" : "/**"}`),
  ],
  "e2e/postgres-replicas.test.ts": [...store, "src/server/backup/**"],
  "e2e/random-faults.test.ts": health,
  "e2e/relays.test.ts": [...settings, "src/node/health/**"],
  "e2e/publish.test.ts": [...builds, "install"],
  "e2e/release.test.ts": [...builds, "install"],
  "e2e/renewal.test.ts": [...certificates, "src/daemon/**", "src/node/files/**"],
  "e2e/replicas-load.test.ts": [...store, "src/server/background.ts"],
  "e2e/replicas.test.ts": [...store, "src/server/stream/**", "src/server/background.ts"],
  "e2e/repositories.test.ts": [...builds, "src/server/releases/**"],
  "e2e/resolved-names.test.ts": names,
  "e2e/returned.test.ts": settings,
  "e2e/seal-signing.test.ts": seals,
  "e2e/sealed-open-nodes.test.ts": seals,
  "e2e/second-addresses.test.ts": health,
  "e2e/self-update-trials.test.ts": updates,
  "e2e/self-update.test.ts": [...updates, "src/cli/**"],
  "e2e/setup-acme.test.ts": [
    "src/server/{setup.ts,options.ts}",
    "src/server/tls/**",
    "test/support/acme*.ts",
  ],
  "e2e/system-names.test.ts": names,
  "e2e/systemd-cures.test.ts": ["src/platform/**", "src/node/{doctor,health}/**", "src/cli/node/doctor.ts"],
  "e2e/systemd-mapping.test.ts": [
    ...portMapping,
    "src/node/contact/check-auth.ts",
    "src/platform/systemd/**",
  ],
  "e2e/systemd-server.test.ts": [
    "install",
    "packaging/**",
    "src/platform/**",
    "src/server/*.ts",
    "src/server/backup/**",
  ],
  "e2e/systemd-flows.test.ts": [
    "src/node/edge/{keep-edge,run-edge,collect-flows,parts}.ts",
    "src/node/files/flows-state.ts",
    "src/platform/nftables.ts",
    "src/platform/systemd/units.ts",
    "src/platform/network/flow-counter.ts",
  ],
  "e2e/systemd-tcp.test.ts": [
    "src/base/datagrams/**",
    "src/node/edge/**",
    "src/platform/systemd/**",
    "src/server/nodes/contact/plane-fallback.ts",
    "src/server/tls/listeners.ts",
  ],
  "e2e/taken-address.test.ts": [...settings, "src/server/allocation/**"],
  "e2e/two-lines.test.ts": [...updates, "src/cli/server/**", "src/server/{releases,tls}/**"],
  "e2e/update-machine.test.ts": updates,
  "e2e/update-rings.test.ts": [...updates, "src/cli/install/**", "src/server/rollout/**"],
  "e2e/windows.test.ts": ["build.ts", "src/daemon/ipc/**", "src/platform/**", "test/support/windows/**"],
  "install-purge.test.ts": [...installer, "src/{node,platform}/**"],
  "install.test.ts": installer,
  "long-texts.test.ts": ["src/**", "test/support/long-texts.ts"],
  "node/contact/enforce-seal.test.ts": [...node, ...server],
  "node/contact/follow.test.ts": node,
  "node/engine/overlay-release.test.ts": [...updates, ...node],
  "node/engine/two-authorities.test.ts": ["src/{engine,pki}/**", "test/support/{build-engine,engines}.ts"],
  "node/files/seal-histories.test.ts": node,
  "node/health/lights.test.ts": node,
  "runtime-words.test.ts": ["src/{base,cli,daemon,node,protocol}/**"],
  "server/alarms/fleet.test.ts": server,
  "server/config/name-histories.test.ts": server,
  "server/history/past.test.ts": server,
  "server/nodes/ephemeral-jobs.test.ts": server,
  "server/store/database-mark.test.ts": store,
  "server/store/leases.test.ts": store,
  "server/store/postgres-locks.test.ts": store,
  "server/store/postgres-silent.test.ts": store,
  "server/store/postgres/postgres.test.ts": store,
  "e2e/backbone.test.ts": settings,
  "e2e/console-add.test.ts": pages,
  "e2e/console-map.test.ts": pages,
  "e2e/console-nodes.test.ts": pages,
  "e2e/console-reach.test.ts": pages,
  "e2e/exits.test.ts": routes,
  "e2e/flows.test.ts": ["src/node/{contact,edge,files}/**", "src/platform/**", "src/server/flows/**"],
  "e2e/key-rotation.test.ts": [...store, "src/server/{backup,users}/**"],
  "e2e/keyring.test.ts": ["src/cli/**", "src/platform/**"],
  "e2e/lost-route.test.ts": [...routes, "src/node/doctor/**"],
  "e2e/name-programs.test.ts": names,
  "e2e/name-server.test.ts": [...names, "src/server/names/**"],
  "e2e/names.test.ts": [...names, "src/server/names/**"],
  "e2e/names-flood.test.ts": names,
  "e2e/nats.test.ts": settings,
  "e2e/node-bars.test.ts": ["src/{daemon,platform}/**", "src/node/{contact,files,health}/**"],
  "e2e/policy.test.ts": policy,
  "e2e/policy-files.test.ts": [...policy, "src/cli/**"],
  "e2e/policy-workflows.test.ts": [...policy, "docs/policy.md", "src/cli/**"],
  "e2e/postgres.test.ts": store,
  "e2e/postgres-lost.test.ts": store,
  "e2e/relayed-bytes.test.ts": [...settings, "src/node/health/**"],
  "e2e/replicas-former.test.ts": ["src/api/**", ...store],
  "e2e/bad-settings-in-rings.test.ts": [...updates, ...settings, "src/server/rollout/**"],
  "e2e/rollouts.test.ts": [...updates, "src/server/rollout/**"],
  "e2e/settings-in-rings.test.ts": [...updates, ...settings, "src/server/rollout/**"],
  "e2e/route-failover.test.ts": routes,
  "e2e/route-sites.test.ts": ["docs/{access,exits}.md", ...routes],
  "e2e/server-faults.test.ts": [...store, "src/server/{backup,http}/**"],
  "e2e/server-killed.test.ts": [...store, "src/server/{audit,backup}/**"],
  "e2e/setup-killed.test.ts": [...files, "src/cli/server/**", "src/server/*.ts"],
  "e2e/single-sign-on.test.ts": ["src/cli/**", "src/server/{oidc,users}/**"],
  "e2e/systemd-control-socket.test.ts": ["src/{daemon,engine,platform}/**"],
  "e2e/systemd-desktop.test.ts": ["src/{daemon,platform}/**"],
  "e2e/systemd-exits.test.ts": routes,
  "e2e/systemd-kills.test.ts": ["src/{daemon,platform}/**", "src/node/engine/**"],
  "e2e/systemd-router.test.ts": routes,
  "e2e/tcp-fallback.test.ts": [
    "src/base/datagrams/**",
    "src/node/{edge,health}/**",
    "src/server/{nodes,tls}/**",
  ],
  "e2e/unreached.test.ts": [...health, "src/node/doctor/**"],
};

/** The file of an entry of `bySources`; the older engines are of many. */
export const fileOf = (name: string): string | undefined =>
  name === olderEngines ? undefined : name.replace(/#.*/, "");

/** The files that an entry of `bySources`, or a file that is named, stands for. */
export const filesFor = (name: string): string[] => [fileOf(name) ?? filesOnEngines()].flat();

/** Files that run on each engine. */
function filesOnEngines(): string[] {
  const isOne = (file: string) =>
    kindOf(file) !== "soak" && /\bdescribe(Every)?Engines?\(/.test(readFileSync(join(tests, file), "utf8"));
  return allFiles().filter(isOne);
}

/**
 * Started first, in this order: the files that take more than about 10 s, or 20 s end to end, as a run of everything
 * prints it.
 */
export const longest: readonly string[] = [
  "server/nodes/ephemeral-jobs.test.ts",
  "runtime-words.test.ts",
  "install.test.ts",
  "server/contract.test.ts",
  "cli/damaged-organization.test.ts",
  "daemon/desired-histories.test.ts",
  "server/policy/reach.test.ts",
  "server/webhooks/webhooks.test.ts",
  "server/backup/restore.test.ts",
  "server/side-by-side-replicas.test.ts",
  "server/store/postgres-silent.test.ts",
  "node/contact/check-auth.test.ts",
  "server/store/leases.test.ts",
  "node/contact/follow.test.ts",
  "server/config/name-histories.test.ts",
  "server/backup/authentication.test.ts",
  "server/nodes/certificate-bounds.test.ts",
  "long-texts.test.ts",
  "server/http/deadlines.test.ts",
  "server/fuzz.test.ts",
  "server/users/guesses.test.ts",
  "server/metrics/operation.test.ts",
  "server/store/postgres/postgres.test.ts",
  "server/tls/acme.test.ts",
  "server/policy-files/policy-files.test.ts",
  "server/offboarding/end-access.test.ts",
  "server/oidc/refusals.test.ts",
  "e2e/rollouts.test.ts",
  "e2e/settings-in-rings.test.ts",
  "e2e/no-lighthouse.test.ts",
  "e2e/ca-rotation.test.ts",
  "e2e/clones.test.ts",
  "e2e/bad-settings-in-rings.test.ts",
  "e2e/certificate-versions.test.ts",
  "e2e/sealed-red-team.test.ts",
  "e2e/sealed-open-nodes.test.ts",
  "e2e/seal-signing.test.ts",
  "e2e/failover.test.ts",
  "e2e/lighthouse-restart.test.ts",
  "e2e/second-addresses.test.ts",
  "e2e/update-machine.test.ts",
  "e2e/update-rings.test.ts",
  "e2e/held-faults.test.ts",
  "e2e/clock-jump.test.ts",
  "e2e/systemd-cures.test.ts",
  "e2e/offloads.test.ts",
  "e2e/broken-disk.test.ts",
  "e2e/doctor.test.ts",
  "e2e/engine-in-use.test.ts",
  "e2e/certificate-kills.test.ts",
  "e2e/packages.test.ts",
  "e2e/renewal.test.ts",
  "e2e/postgres-api.test.ts",
  "e2e/systemd-server.test.ts",
  "e2e/name-programs.test.ts",
  "e2e/daemon.test.ts",
  "e2e/certificate-changes.test.ts",
  "e2e/policy.test.ts",
  "e2e/self-update-trials.test.ts",
  "e2e/replicas-load.test.ts",
  "e2e/applied-changes.test.ts",
  "e2e/host-names.test.ts",
  "e2e/resolved-names.test.ts",
  "e2e/windows.test.ts",
  "e2e/desired-state.test.ts",
  "e2e/console-node-list.test.ts",
  "e2e/console-needs.test.ts",
  "e2e/daemon-commands.test.ts",
  "e2e/healing-loops.test.ts",
  "e2e/console.test.ts",
  "e2e/replicas.test.ts",
  "e2e/healing.test.ts",
  "e2e/documents.test.ts",
  "e2e/install-machine.test.ts",
  "e2e/arm64.test.ts",
  "e2e/day-one.test.ts",
  "e2e/release.test.ts",
  "e2e/revocation.test.ts",
  "e2e/path-reports.test.ts",
  "e2e/dry-run.test.ts",
  "e2e/system-names.test.ts",
  "e2e/random-faults.test.ts",
  "e2e/self-update.test.ts",
  "e2e/killed-renames.test.ts",
  "e2e/demo.test.ts",
  "e2e/health.test.ts",
  "e2e/backbone.test.ts",
  "e2e/acme.test.ts",
  "e2e/policy-random.test.ts",
  "e2e/neighbours.test.ts",
  "e2e/postgres-replicas.test.ts",
  "e2e/relayed-bytes.test.ts",
  "e2e/nebula-cert.test.ts",
  "e2e/joining.test.ts",
  "e2e/systemd-desktop.test.ts",
  "e2e/taken-address.test.ts",
  "e2e/docs.test.ts",
  "e2e/overlay-install.test.ts",
  "e2e/returned.test.ts",
  "e2e/killed.test.ts",
  "e2e/nats.test.ts",
];

/** Files that run alone, each with the reason. All others run side by side. */
export const alone: Readonly<Record<string, string>> = {
  "daemon/day.test.ts": "a day of a simulated clock, which a busy machine makes longer than its limit",
  "e2e/node-bars.test.ts": "measures memory and time of 100 organizations against bars",
  "e2e/daemon-socket.test.ts": "measures how soon the daemon answers in a flood of requests",
  "e2e/offloads.test.ts":
    "measures whether packets that are sent at once pass, which a busy machine leaves uncertain",
  "e2e/certificate-versions.test.ts": "counts pings that restarts lose, which a busy machine makes more",
  "e2e/failover.test.ts": "a balancer's checks of 5 s must not miss a busy server",
  "e2e/postgres.test.ts": "measures how soon a change and a restarted database are there",
};

/**
 * So many processes of unit tests, and so many end-to-end files, are run again by themselves when they failed beside others,
 * and the end of the output names them: a machine that others load, too, makes some steps late. More failures are a defect.
 */
export const maxAgain = 12;

/**
 * Environment of processes with many short tests: most code runs a few times only, so compiling the rest to the fastest
 * code takes more processor time than it saves.
 */
export const shortRuns: Readonly<Record<string, string>> = {
  BUN_JSC_useFTLJIT: "0",
  BUN_JSC_thresholdForJITAfterWarmUp: "2000",
};

/** Programs of Debian packages that unit tests call. */
export const unitPrograms: readonly string[] = [
  "/usr/bin/nebula",
  "/usr/bin/nebula-cert",
  "/usr/bin/openssl",
  "/usr/bin/promtool",
  "/usr/sbin/exim4",
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
  "/usr/bin/mksh",
  "/usr/bin/posh",
  "/usr/lib/postgresql/15/bin/postgres",
  "/usr/bin/glewlwyd",
];
