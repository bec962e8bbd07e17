// `--dry-run` of every command: it changes nothing, and then the command does exactly what the plan says. The whole tree is
// compared before and after, with modes and owners, and every program and request.

import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { allCommands } from "../../src/cli/commands.ts";
import { findCommand } from "../../src/cli/parse.ts";
import { globalFlags } from "../../src/cli/settings.ts";
import type { Serving } from "../../src/server/serve.ts";
import { handMade } from "../support/hand-made.ts";
import { planAndRun } from "../support/dry-run.ts";
import { agentHere, serveHere } from "../support/in-process.ts";
import { describeMachine } from "../support/nspawn.ts";
import { buildVersion, makeRelease, releaseKey } from "../support/releases.ts";
import { observedTree, type ObservedTree } from "../support/observed-tree.ts";
import { password } from "../support/server.ts";
import { temporaryDirectory } from "../support/temporary.ts";

type Place = { root: string; requests: string[]; token(): Promise<string>; jwt: string; base: string };
type Case = {
  line: string;
  input?: (place: Place) => string | Promise<string>;
  prepare?: (place: Place) => unknown;
  until?: string;
  lastFile?: string;
  isWatched?: boolean;
  /** A planned program starts others, or sends requests itself. */
  isShallow?: boolean;
};

const engine = (version: string) =>
  `#!/bin/sh\ncase $1 in -version) echo Version: ${version};; -config) exec sleep 100;; esac\nexit 0\n`;
const placeFile =
  (path: string, content: string, mode = 0o755) =>
  ({ root }: Place) =>
    writeFileSync(join(root, path), content, { mode });

/** A CA of no organization here. */
function placeCa(place: Place): void {
  const nowS = Math.floor(Date.now() / 1000);
  const { makeNetwork } = handMade(
    () => join(place.root, "root/hand"),
    () => nowS,
  );
  makeNetwork();
}

/** Takes the daemon's place until the tests end, and records what it is asked to change. */
function answerAsDaemon({ root, requests }: Place): void {
  const directory = join(root, "run/overlay-agent");
  mkdirSync(directory, { recursive: true, mode: 0o750 });
  Bun.listen({
    unix: join(directory, "cmd.sock"),
    socket: {
      data(socket, bytes) {
        for (const line of bytes.toString().trim().split("\n")) {
          const { action, team = "", id } = v.parse(Asked, line);
          if (!["version", "logs", "list", "teams", "status", "peers"].includes(action))
            requests.push(`${action} ${team} unix:/var/run/overlay-agent/cmd.sock`);
          socket.write(
            `${JSON.stringify({ ok: true, message: "done", ...answers[action], ...(id === undefined ? {} : { id }) })}\n`,
          );
        }
      },
    },
  });
}
const answers: Record<string, object> = {
  list: { teams: [{ team: "acme", mode: "desktop", wanted: "up", state: "running" }] },
  peers: { peers: [{ name: "alpha", address: "10.77.0.1", path: "direct", probe: "answers", rtt_ms: 1 }] },
};
const Asked = v.pipe(
  v.string(),
  v.parseJson(),
  v.object({
    action: v.string(),
    team: v.optional(v.string()),
    id: v.optional(v.union([v.string(), v.number()])),
  }),
);

const user = "ada@company.example";
const policy = "rules:\n  - {direction: outbound, peer: any, target: any}\n";
const typed = () => `${password}\n`;

/** Each group begins with a new tree; its cases follow one another in it. */
const groups: Record<string, readonly Case[]> = {
  "node in server mode": [
    {
      line: "register --api-base BASE --org-slug acme --node-name alpha --mode server --registration-token-file - --allow-routes 0.0.0.0/0",
      input: ({ token }) => token(),
    },
    { line: "sync-config" },
    {
      line: "sync-config --allow-routes none",
      prepare: placeFile("etc/overlay-agent/acme/overrides.yml", "logging:\n  level: debug\n", 0o600),
    },
    { line: "checkin" },
    { line: "check-auth" },
    { line: "doctor --bundle /root/report.tar.gz" },
    { line: "status" },
    { line: "start acme" },
    { line: "stop acme" },
    { line: "install-systemd --uninstall" },
    { line: "install-systemd" },
    {
      line: "overlay install --source file --file /root/engine",
      prepare: placeFile("root/engine", engine("1.10.3")),
    },
    {
      line: "overlay update --source file --file /root/engine",
      prepare: placeFile("root/engine", engine("1.11.0")),
    },
    { line: "overlay update --rollback" },
    { line: "overlay check" },
    { line: "check-port 48242" },
    { line: "check-port 48242 --api-base BASE" },
    {
      line: "register --api-base BASE --org-slug acme --node-name alpha --force --registration-token-file -",
      input: ({ token }) => token(),
      prepare: placeFile("etc/overlay-agent/acme/run/local-changes.json", "{}", 0o600),
    },
    { line: "unregister --org-slug acme --access-token-file -", input: ({ jwt }) => jwt },
  ],
  "node in desktop mode": [
    {
      line: "register --api-base BASE --org-slug acme --node-name beta --registration-token-file - --overlay-binary /usr/local/bin/overlay",
      input: ({ token }) => token(),
      prepare: placeFile("usr/local/bin/overlay", engine("1.11.0")),
    },
    { line: "sync-config" },
    {
      line: "--ipc-mode socket",
      until: "Engine started",
      lastFile: "etc/overlay-agent/acme/hosts.json",
      isWatched: true,
    },
    { line: "start acme", prepare: answerAsDaemon },
    { line: "stop acme" },
    { line: "restart acme" },
    { line: "switch acme" },
    { line: "peers acme" },
    { line: "ping alpha --count 1" },
    { line: "whois alpha" },
    {
      line: "overlay update --source file --file /root/engine --overlay-binary /usr/local/bin/overlay",
      prepare: placeFile("root/engine", engine("1.12.0")),
    },
    { line: "logs acme" },
    {
      line: "unseal acme --yes",
      prepare: placeFile("etc/overlay-agent/acme/seal.json", "{}", 0o644),
    },
    { line: "unregister --org-slug acme" },
  ],
  "self-update without services": [
    { line: "self-update --release-url BASE/releases/" },
    { line: "self-update --release-url BASE/releases/" },
    { line: "self-update --rollback" },
  ],
  "self-update under the guard": [
    {
      line: "register --api-base BASE --org-slug acme --node-name gamma --mode server --registration-token-file -",
      input: ({ token }) => token(),
    },
    // systemd would have started the timer: the guard's own check-auth is not the first.
    { line: "check-auth" },
    { line: "self-update --release-url BASE/releases/", isShallow: true },
    { line: "self-update --rollback" },
  ],
  "without anything": [
    { line: "version --no-check" },
    { line: "demo", isShallow: true },
    { line: "completion bash" },
    { line: "install-systemd" },
  ],
  "control plane": [
    { line: `admin user create ${user} --staff --password-file -`, input: typed },
    { line: "admin user list" },
    { line: `admin org create acme --network 10.77.0.0/16 --owner ${user}` },
    { line: "admin org update acme --name Acme" },
    { line: "admin org list" },
    { line: "admin token create acme --uses 3" },
    { line: "admin org show acme" },
    { line: "admin token list acme" },
    { line: "admin token revoke acme 1" },
    { line: "admin node create acme laptop" },
    { line: "admin node list acme" },
    { line: "admin node show acme laptop" },
    { line: "admin node update acme laptop --config-overrides -", input: () => "{}" },
    { line: "admin node rename acme laptop desk" },
    { line: "admin node update acme desk --name laptop" },
    { line: "admin rollout list acme" },
    { line: "admin route create acme 192.168.7.0/24 --via laptop" },
    { line: "admin route list acme" },
    { line: "admin route show acme 192.168.7.0/24" },
    { line: "admin route update acme 192.168.7.0/24 --metric 200" },
    { line: "admin route delete acme 192.168.7.0/24" },
    { line: "admin service-token create acme ci" },
    { line: "admin service-token list acme" },
    { line: "admin service-token revoke acme ci" },
    { line: "admin alarm list acme" },
    { line: "admin webhook create acme https://9.9.9.9/hook" },
    { line: "admin webhook list acme" },
    { line: "admin webhook update acme 1 --event node.* --event alarm.*" },
    { line: "admin alarm test acme" },
    { line: "admin webhook deliveries acme 1" },
    { line: "admin webhook delete acme 1" },
    { line: "admin invitation create acme eve@company.example" },
    { line: "admin invitation list acme" },
    { line: "admin invitation delete acme eve@company.example" },
    { line: "admin events acme" },
    { line: "admin path list acme" },
    { line: "admin name create acme db --to laptop" },
    { line: "admin name list acme" },
    { line: "admin name delete acme db" },
    { line: "admin node create acme spare" },
    { line: "admin node delete acme spare" },
    { line: "admin node revoke acme laptop --reason stolen" },
    { line: "admin node restore acme laptop" },
    { line: "admin group create acme web" },
    { line: "admin group update acme web --description servers" },
    { line: "admin group list acme" },
    { line: "admin rule create acme --protocol tcp --ports 5432 --peer group:web" },
    { line: "admin rule list acme" },
    { line: "admin rule update acme 3 --ports 5433" },
    { line: "admin rule delete acme 3" },
    { line: "admin group delete acme web" },
    { line: "admin policy import --from headscale -", input: () => '{"acls": []}' },
    { line: "admin policy plan acme -", input: () => policy },
    { line: "admin policy test acme -", input: () => policy },
    { line: "admin policy apply acme - --prune --confirm 10m", input: () => policy },
    { line: "admin policy confirm acme" },
    { line: "admin policy apply acme - --prune --confirm 10m", input: () => `${policy}groups: {db: {}}\n` },
    { line: "admin policy revert acme" },
    { line: "admin policy get acme" },
    { line: "admin policy update acme --by-file on" },
    { line: "admin policy update acme --by-file off" },
    { line: "admin member create acme bob@company.example" },
    { line: "admin member list acme" },
    { line: "admin member update acme bob@company.example --role admin" },
    { line: "admin member delete acme bob@company.example" },
    { line: "admin org create spare --network 10.79.0.0/16" },
    { line: "admin org delete spare --confirm spare" },
    { line: "admin ca show acme" },
    { line: "admin ca rotate acme" },
    { line: "admin backup /root/backup.db" },
    { line: "admin audit verify" },
    { line: "admin server list" },
    { line: "admin export acme /root/plain --plain" },
    { line: "admin import other /root/hand --network 10.78.0.0/16", prepare: placeCa },
    { line: "admin restore /root/backup.db --replace" },
    { line: "admin key rotate" },
    { line: `admin user password ${user} --password-file -`, input: typed },
    { line: "admin user create bob@company.example --password-file -", input: typed },
    { line: "admin user disable bob@company.example" },
    { line: "admin user enable bob@company.example" },
    { line: "serve --listen 127.0.0.1:0 --tls auto", until: "listens at" },
  ],
  "signed in": [
    { line: `login --api-base BASE --email ${user} --password-file -`, input: typed },
    { line: "whoami" },
    { line: "logout" },
  ],
  "new control plane": [{ line: "serve --listen 127.0.0.1:0 --tls auto", until: "listens at" }],
};

/** Commands whose plan cannot be followed here, and where it is tested instead. */
const elsewhere: Record<string, string> = {
  up: "it needs a control plane; test/e2e/joining.test.ts and test/node/enroll/browser-enrollment.test.ts read its plans",
  down: "its plan is that of stop, for all organizations",
  setup: "it needs a machine of its own; test/e2e/day-one.test.ts reads its plan, before and after",
  "key-words": "it only reads",
  netcheck: "it only reads; test/e2e/nats.test.ts runs it",
  edge: "it runs in the foreground; test/e2e/systemd-tcp.test.ts and systemd-router.test.ts; exits.test.ts follows the plan of --undo",
  "exit use": "it needs an exit; test/e2e/exits.test.ts",
  "exit list": "it only reads; test/e2e/exits.test.ts",
  "exit show": "it only reads; test/e2e/exits.test.ts",
  names: "test/e2e/system-names.test.ts turns it on and off",
  "admin node renew": "one request, as restore",
  "admin node transfer": "one request; test/server/nodes/node-owner.test.ts",
  "admin diff": "it only reads; test/cli/admin-remote.test.ts",
  "admin clock confirm": "one request; test/server/clock.test.ts",
  "admin domain list": "it only reads",
  "admin domain create": "test/cli/admin-domain.test.ts, as those below",
  "admin domain check": "it needs a TXT record",
  "admin domain vouch": "test/cli/admin-domain.test.ts",
  "admin domain delete": "test/cli/admin-domain.test.ts",
  "drill-run": "the daemon starts it, with an order; test/e2e/drills.test.ts",
  "admin drill lighthouse-away": "one request; test/e2e/drills.test.ts, as those below",
  "admin drill relay-away": "one request",
  "admin drill control-plane-away": "one request",
  "admin drill show": "it only reads",
  "admin drill abort": "one request",
  "update-run": "the daemon starts it, with an order; test/node/contact/requests/update-orders.test.ts",
  "admin rollout create":
    "it needs a node that permits it; test/server/rollout/rollouts.test.ts, as those below",
  "admin rollout show": "it only reads",
  "admin rollout pause": "one request",
  "admin rollout resume": "one request",
  "admin rollout abort": "one request",
  "admin seal init": "it only reads; test/cli/seal.test.ts, as those below",
  "admin seal review": "it only reads",
  "admin seal show": "it only reads",
  "admin seal forget": "one request",
  "admin seal publish": "one request",
  "admin seal ca": "test/cli/seal-ca.test.ts",
  "admin seal pending": "it only reads",
  "admin seal sign": "test/cli/seal-sign.test.ts",
  "admin oidc create": "it asks a provider; test/cli/admin-oidc.test.ts, as those below",
  "admin oidc list": "it only reads",
  "admin oidc update": "it needs a provider",
  "admin oidc delete": "it needs a provider",
  "admin audit verify-report": "it only reads a file; test/server/history/reports.test.ts",
  "admin policy propose": "it only reads; test/server/flows/propose-policy.test.ts",
  "admin flow list": "it reads, which is an event; test/server/flows/flows.test.ts",
  "admin relay list": "it only reads; test/e2e/relayed-bytes.test.ts",
  "admin relay limit": "it needs a relay; test/e2e/relayed-bytes.test.ts",
  "admin alarm show": "it only reads; test/cli/golden-admin.test.ts",
  "admin webhook send-again": "it needs a delivery that ended; test/server/webhooks/webhooks.test.ts",
  "admin registration list": "it only reads; test/e2e/approval.test.ts",
  "admin registration approve": "one request; test/e2e/approval.test.ts",
  "admin registration refuse": "one request; test/cli/approval.test.ts",
  "admin factor list": "of a signed-in user; test/e2e/accounts.test.ts, as those below",
  "admin factor add": "it asks for a code in between",
  "admin factor codes": "it shows codes once",
  "admin factor remove": "it needs a factor",
  "admin factor staff": "a switch of the installation; test/server/users/factors/second-factor.test.ts",
  "admin session list": "it only reads",
  "admin session revoke": "it needs a browser's session; test/server/users/sessions/browser-sessions.test.ts",
  "admin user reset-factors": "it needs a factor; test/server/users/factors/second-factor.test.ts",
  "install-launchd": "macOS only; test/platform/service-manager.test.ts reads its plan",
  "install-tap": "Windows only; test/e2e/windows.test.ts",
};

describe("table", () => {
  test("names every command of the program", async () => {
    const commands = await allCommands();
    const flags = globalFlags({ platform: "linux", env: {} });
    const names = Object.values(groups).flatMap((cases) =>
      cases.map(({ line }) => findCommand(line.split(" "), Object.keys(commands), flags).name),
    );
    expect([...new Set([...names.filter((name) => name !== ""), ...Object.keys(elsewhere)])].sort()).toEqual(
      Object.keys(commands).sort(),
    );
  });
});

describeMachine("plan and deed", () => {
  const requests: string[] = [];
  const work = temporaryDirectory();
  const data = join(work.path, "data");
  const releases = join(work.path, "releases");
  let serving: Serving;
  let recorder: Bun.Server<undefined>;
  let place: Omit<Place, "root" | "requests">;

  beforeAll(async () => {
    const key = releaseKey;
    buildVersion(work.path, "0.1.0");
    const next = readFileSync(buildVersion(work.path, "0.2.0"));
    await makeRelease(
      releases,
      { version: "0.2.0", sequence: 5, executables: { [hostTarget()]: next } },
      key,
    );
    const admin = async (words: string[], input = "") => {
      const { status, out, err } = await agentHere(["admin", ...words, "--data-dir", data], { input });
      if (status !== 0) throw new Error(`${words.join(" ")}: ${err}`);
      return out;
    };
    await admin(["user", "create", user, "--password-file", "-"], password);
    await admin(["org", "create", "acme", "--network", "10.77.0.0/16", "--owner", user]);
    serving = await serveHere(data, { releasesDirectory: releases });
    recorder = Bun.serve({
      port: 0,
      hostname: "127.0.0.1",
      fetch: async (request) => {
        const { pathname, search, href } = new URL(request.url);
        requests.push(`${request.method} ${href}`);
        const body = request.method === "GET" ? null : await request.arrayBuffer();
        return fetch(serving.url + pathname + search, {
          method: request.method,
          headers: request.headers,
          body,
        });
      },
    });
    const base = `http://127.0.0.1:${recorder.port}`;
    const answer = await fetch(`${serving.url}/api/token/`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ email: user, password }),
    });
    const { access } = v.parse(v.object({ access: v.string() }), await answer.json());
    place = { base, jwt: access, token: async () => (await admin(["token", "create", "acme"])).trim() };
  }, 120_000);
  afterAll(async () => {
    await recorder.stop(true);
    await serving.stop();
    work[Symbol.dispose]();
  });

  for (const [group, cases] of Object.entries(groups)) {
    describe(group, () => {
      let tree: ObservedTree;
      beforeAll(() => {
        tree = observedTree(join(work.path, "agent-0.1.0"));
      });
      afterAll(() => tree[Symbol.dispose]());
      for (const { line, input, prepare, until, lastFile, isWatched = false, isShallow = false } of cases) {
        test(
          line,
          async () => {
            const here = { ...place, root: tree.root, requests };
            prepare?.(here);
            const argv = ["/usr/local/bin/agent", ...line.replaceAll("BASE", place.base).split(" ")];
            const { planned, done } = await planAndRun(tree, argv, {
              requests,
              isWatched,
              ...(input === undefined ? {} : { input: await input(here) }),
              ...(until === undefined ? {} : { until }),
              ...(lastFile === undefined ? {} : { lastFile }),
            });
            const { runs, requests: sent } = planned;
            const own = {
              runs: done.runs.slice(0, runs.length),
              requests: done.requests.slice(0, sent.length),
            };
            expect(isShallow ? { ...done, ...own } : done).toEqual(planned);
          },
          60_000,
        );
      }
    });
  }
});
