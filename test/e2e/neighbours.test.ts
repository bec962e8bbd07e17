// Agents and servers of two versions work together: registration, check-in, renewal, revocation and the daemon, with
// agents of a former version on today's server and the reverse.

import { expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync, renameSync } from "node:fs";
import { join } from "node:path";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { fingerprint } from "../../src/pki/nebula.ts";
import { unsafeRoutes } from "../../src/node/files/config/read-config.ts";
import { paths } from "../support/paths.ts";
import {
  agent,
  agentJson,
  buildAgent,
  runAgent,
  startControlPlane,
  type AgentResult,
  type ControlPlane,
} from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { enginesOf, placesBelow, startDaemon, untilStatus } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { formerAgent } from "../support/former-agent.ts";
import { nodesOf, until, type Member } from "../support/members.ts";
import { lost, makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

/** The executables of the two versions, each a function that puts its program into the words of a command. */
type Program = (argv: readonly string[]) => string[];
buildAgent();
const formerPath = formerAgent();
const today: Program = (argv) => [...argv];
const former: Program = (argv) => argv.map((word) => (word === agent ? formerPath : word));

/** A control plane whose server and admin commands are of one version. */
async function startPlane(program: Program, dataDirectory: string, port = 0): Promise<ControlPlane> {
  const plane = await startControlPlane(dataDirectory, [], port, program);
  const admin = (args: readonly string[], input = "") =>
    runAgent(["admin", ...args, "--data-dir", dataDirectory], { input, inside: program });
  return { ...plane, admin };
}

type Scene = { organization: Organization; program: Program; nebula: string; directory: string };

/** Registers a node of this host in desktop mode, starts its daemon and resolves when its engine runs. */
async function addMember(
  stack: AsyncDisposableStack,
  { organization, program, nebula, directory }: Scene,
  host: Host,
  token: string,
  flags: readonly string[] = [],
): Promise<Member> {
  const { slug, plane } = organization;
  const { name } = host;
  const places = placesBelow(join(directory, name), nebula);
  const target = ["--api-base", plane.url, "--org-slug", slug, "--node-name", name];
  const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start", ...flags];
  const registered = await agentJson(["register", ...target, ...how, ...places.flags], {
    input: token,
    inside: program,
  });
  stack.use(await bridgePort(host, join(directory, name), Number(new URL(plane.url).port)));
  const daemon = await startDaemon({ inside: (argv) => host.inside(program(argv)) }, places);
  stack.defer(async () => {
    daemon.signal("SIGTERM");
    await daemon.exited;
  });
  await untilStatus(places, slug, ({ state }) => state === "running", 20_000);
  return {
    name,
    host,
    places,
    daemon,
    id: Number(registered["node_id"]),
    ip: String(registered["ip_address"]),
  };
}

const commandOf = (program: Program, { places }: Member, words: readonly string[]): Promise<AgentResult> =>
  runAgent([...words, ...places.flags], { inside: program });

const certificateOf = ({ places }: Member) =>
  decodeBundle(readFileSync(join(places.configRoot, "acme/host.crt"), "utf8"))
    .map(fingerprint)
    .join();

/** Check-in, renewal under a running tunnel, and revocation, for two members whose engines run. */
async function proveLife(scene: Scene, lighthouse: Member, alpha: Member): Promise<void> {
  const { organization, program } = scene;
  const ping = startPing(lighthouse.host, alpha.ip);
  await ping.reply(20_000);
  await checkIn(scene, alpha);

  const certificate = certificateOf(alpha);
  const renewed = await organization.api("POST", paths.renewCert("acme", alpha.id), {});
  expect(renewed.status).toBe(200);
  await until("the renewed certificate", () => certificateOf(alpha) !== certificate, 20_000);
  await until(
    "its confirmation",
    async () => {
      const node = (await nodesOf(organization)).find(({ id }) => id === alpha.id);
      return (
        node?.certificate?.fingerprint === certificateOf(alpha) &&
        node.applied_config_version === node.config_version
      );
    },
    20_000,
  );
  await ping.reply(20_000);
  await ping.stop();
  expect(lost(ping)).toEqual([]);

  expect((await organization.api("DELETE", paths.node("acme", alpha.id))).status).toBe(204);
  await untilStatus(alpha.places, "acme", ({ state }) => state === "revoked", 20_000);
  await until("the end of the engine", () => enginesOf(alpha.places).length === 0, 20_000);
  expect(existsSync(join(alpha.places.configRoot, "acme/auth-revoked.json"))).toBe(true);
  expect((await commandOf(program, alpha, ["start", "acme"])).status).toBe(7);
  expect((await commandOf(program, alpha, ["checkin"])).status).toBe(7);
  const after = startPing(lighthouse.host, alpha.ip);
  const heard = await after.reply(2000).catch(() => "silence");
  await after.stop();
  expect(heard).toBe("silence");
}

async function checkIn({ program, organization }: Scene, member: Member): Promise<void> {
  const nodeOf = async () => (await nodesOf(organization)).find(({ id }) => id === member.id);
  // An old engine restarts for changed routes, at most once in ten seconds: the last change may be under way. What nodes
  // confirm may make one more version, so the check-in is repeated until it tells of none.
  await until(
    "a check-in with the newest configuration",
    async () => {
      const node = await nodeOf();
      if (node?.applied_config_version !== node?.config_version) return false;
      const result = await agentJson(["checkin", ...member.places.flags], { inside: program });
      expect(result).toMatchObject({ organizations: [{ org_slug: "acme" }] });
      return JSON.stringify(result).includes(`"config_changed":false`);
    },
    90_000,
  );
  expect(await nodeOf()).toMatchObject({ online: true, agent_version: expect.any(String), state: "active" });
}

/** With everything that a registration can carry. */
const lighthouseFlags = ({ address }: Host) =>
  `--is-lighthouse --is-relay --public-ip ${address} --external-port 4242 --listen-port 4242 --ip-address 10.77.0.9`.split(
    " ",
  );

/** A former agent takes the preferred one of two routers, and follows a change. */
async function proveRoutes({ organization }: Scene, routers: readonly [Member, Member], user: Member) {
  const network = "192.168.7.0/24";
  const route = (method: string, body: object) =>
    organization.api(method, "/api/org/acme/routes/", { network, ...body });
  for (const { host } of routers) host.run(["ip", "addr", "add", "192.168.7.10/32", "dev", "lo"]);
  const [first, second] = routers;
  expect((await route("POST", { via: [first.id, second.id] })).status).toBe(201);
  expect((await route("PATCH", { via: [first.id], metric: 50 })).status).toBe(200);
  const config = join(user.places.configRoot, "acme/config.yml");
  const used = () => unsafeRoutes(readFileSync(config, "utf8")).at(-1)?.routers[0];
  const confirmed = () =>
    until(
      "its confirmation",
      async () => {
        const node = (await nodesOf(organization)).find(({ id }) => id === user.id);
        return node?.applied_config_version === node?.config_version;
      },
      20_000,
    );
  for (const router of routers) {
    await until(`the router ${router.name}`, () => used() === router.ip, 20_000);
    const ping = startPing(user.host, "192.168.7.10");
    await ping.reply(20_000);
    await ping.stop();
    await confirmed();
    if (router === first)
      expect((await route("PATCH", { via: [first.id], maintenance: true })).status).toBe(200);
  }
  const gone = `/api/org/acme/routes/?network=${encodeURIComponent(network)}`;
  expect((await organization.api("DELETE", gone)).status).toBe(204);
  await until("no route", () => used() === undefined, 20_000);
  await confirmed();
}

asRoot("neighbours", () => {
  describeEngines("two versions", ({ nebula }) => {
    test("former agents stay connected through an upgrade and a rollback of the server", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "alpha", "beta", "gamma"]);
      const data = join(directory.path, "server");
      const before = await startPlane(former, data);
      await using stack = new AsyncDisposableStack();
      stack.defer(async () => void (await before.stop()));
      const organization = await makeOrganization(before);
      const scene = { organization, program: former, nebula, directory: directory.path };
      const token = await organization.makeToken(["--uses", "4", "--lighthouse"]);
      const hub = lan.host("lighthouse");
      const lighthouse = await addMember(stack, scene, hub, token, lighthouseFlags(hub));

      expect(await before.stop()).toBe(0);
      const after = await startPlane(today, data, Number(new URL(before.url).port));
      stack.defer(async () => void (await after.stop()));
      await checkIn(scene, lighthouse);
      const alpha = await addMember(stack, scene, lan.host("alpha"), token);
      const routers = { ...scene, program: today };
      const beta = await addMember(stack, routers, lan.host("beta"), token);
      await proveRoutes(scene, [beta, await addMember(stack, routers, lan.host("gamma"), token)], alpha);
      await proveLife(scene, lighthouse, alpha);

      // A rollback: the former server refuses the newer database, and works on the copy from before the upgrade.
      expect(await after.stop()).toBe(0);
      const refused = await runAgent(["serve", "--listen", "127.0.0.1:0", "--data-dir", data], {
        inside: former,
      });
      expect(refused.stderr).toContain("restore a backup from before the update");
      expect(refused.status).toBe(78);
      const [copy = ""] = readdirSync(data).filter((name) => name.startsWith("control.db.v"));
      renameSync(join(data, copy), join(data, "control.db"));
      const back = await startPlane(former, data, Number(new URL(before.url).port));
      stack.defer(async () => void (await back.stop()));
      expect((await commandOf(former, lighthouse, ["checkin"])).status).toBe(0);
    }, 90_000);

    test("today's agents work with a former server", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["lighthouse", "alpha"]);
      await using stack = new AsyncDisposableStack();
      const plane = await startPlane(former, join(directory.path, "server"));
      stack.defer(async () => void (await plane.stop()));
      const organization = await makeOrganization(plane);
      const scene = { organization, program: today, nebula, directory: directory.path };
      const token = await organization.makeToken(["--uses", "2", "--lighthouse"]);
      const hub = lan.host("lighthouse");
      const lighthouse = await addMember(stack, scene, hub, token, lighthouseFlags(hub));
      const alpha = await addMember(stack, scene, lan.host("alpha"), token);
      await checkIn(scene, lighthouse);
      await proveLife(scene, lighthouse, alpha);
    }, 60_000);
  });
});
