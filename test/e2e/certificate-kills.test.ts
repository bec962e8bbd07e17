// The control plane is killed with SIGKILL while its organization's certificates change: between versions, to the first IPv6
// addresses, and in CA rotations. It is started again as systemd does, and each change ends by itself; nodes keep their
// tunnels. A seeded tenth of the kills, or all with SOAK=1.

import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { decodeBundle } from "../../src/pki/bundle.ts";
import { decodeCaBundle, fingerprint } from "../../src/pki/nebula.ts";
import { paths } from "../support/paths.ts";
import { Authorities } from "../../src/api/certificates/authorities.ts";
import { agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { asRoot, engineNamed } from "../support/engines.ts";
import { engineLog, makeMembers, nodesOf, pingAll, until, type Member } from "../support/members.ts";
import { lost, makeLan, startPing, type Pinger } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { inFull, instants } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

type Scene = {
  acme: Organization;
  members: readonly Member[];
  pings: readonly Pinger[];
  kill(): Promise<void>;
};

async function withScene(work: (scene: Scene) => Promise<void>): Promise<void> {
  using directory = temporaryDirectory();
  using lan = makeLan(["lighthouse", "alpha", "beta"]);
  const data = join(directory.path, "server");
  let plane = await startControlPlane(data);
  await using _ = { [Symbol.asyncDispose]: () => plane[Symbol.asyncDispose]() };
  const port = Number(new URL(plane.url).port);
  const acme = await makeOrganization(plane);
  await using scene = await makeMembers(acme, lan, directory.path, engineNamed("sid").nebula);
  const { members } = scene;
  const pings = await pingAll(members);
  const kill = async () => {
    process.kill(plane.pid, "SIGKILL");
    await plane.stop();
    plane = await startControlPlane(data, [], port);
  };
  await work({ acme, members, pings, kill });
  await Promise.all(pings.map((ping) => ping.reply(20_000)));
  await Promise.all(pings.map((ping) => ping.stop()));
  await agentJson(["admin", "audit", "verify", "--data-dir", data]);
}

/** As a person would: again after a broken connection, and while the step before is not in force. */
async function ask({ api }: Organization, method: string, path: string, body: unknown): Promise<void> {
  let last = "";
  await until(`${method} ${path}: ${JSON.stringify(body)}`, async () => {
    const answer = await api(method, path, body).catch(() => undefined);
    if (answer === undefined || answer.status === 503) return false;
    last = `${answer.status} ${await answer.text()}`;
    if (answer.status !== 200 && answer.status !== 409) throw new Error(last);
    return answer.status === 200;
  });
}

const fileOf = ({ places }: Member, name: string) =>
  readFileSync(join(places.configRoot, "acme", name), "utf8");
const versionsOn = (member: Member) =>
  decodeBundle(fileOf(member, "host.crt"))
    .map(({ version }) => version)
    .join();
const trustedBy = (member: Member) => decodeCaBundle(fileOf(member, "ca.crt")).map(fingerprint);
const startsOf = (member: Member) => engineLog(member).split("Nebula interface is active").length - 1;

async function migrate({ acme, members, pings, kill }: Scene): Promise<void> {
  const steps = [
    ["both", "1,2"],
    [2, "2"],
    ["both", "1,2"],
    [1, "1"],
  ] as const;
  for (const [at, instant] of instants(80, 2500).entries()) {
    const [certificate_version, there] = steps[at % steps.length] ?? steps[0];
    const asked = ask(acme, "PATCH", paths.organization("acme"), { certificate_version });
    await Bun.sleep(instant);
    await kill();
    await asked;
    await until(`version ${certificate_version}`, () => members.every((each) => versionsOn(each) === there));
  }
  await Bun.sleep(6000);
  expect(members.map(startsOf)).toEqual([1, 1, 1]);
  expect(pings.map(lost)).toEqual(pings.map(() => []));
}

async function addSecondAddresses({ acme, members, kill }: Scene): Promise<void> {
  await ask(acme, "PATCH", paths.organization("acme"), { network6: "fd77::/64" });
  const steps = ["both", 2] as const;
  for (const certificate_version of steps) {
    const asked = ask(acme, "PATCH", paths.organization("acme"), { certificate_version });
    for (const instant of instants(20, 4000)) {
      await Bun.sleep(instant);
      await kill();
    }
    await asked;
    const there = certificate_version === 2 ? "2" : "1,2";
    const isThere = () => members.every((each) => versionsOn(each) === there);
    await until(`version ${certificate_version} with IPv6`, isThere, 120_000);
  }
  // Each engine once.
  expect(members.map(startsOf)).toEqual([2, 2, 2]);
  const addresses = (await nodesOf(acme)).map((each) => each.ip_address6 ?? "");
  expect(addresses).toEqual(members.map((_, at) => `fd77::${at + 1}`));
  const [from] = members;
  const pings = from === undefined ? [] : addresses.slice(1).map((each) => startPing(from.host, each));
  await Promise.all(pings.map((ping) => ping.reply(20_000)));
  await Promise.all(pings.map((ping) => ping.stop()));
}

async function rotate({ acme, members, kill }: Scene): Promise<void> {
  const show = async () => {
    const answer = await acme.api("GET", "/api/org/acme/ca/").catch(() => undefined);
    return answer?.status === 200 ? v.parse(Authorities, await answer.json()).rotation.phase : undefined;
  };
  for (const instant of instants(30, 8000)) {
    const before = members.flatMap(trustedBy);
    // Without `now` it waits a minute for tunnels; ca-rotation.test.ts restarts the server in that.
    const begun = acme.api("POST", "/api/org/acme/ca/rotate/", { action: "start", now: true });
    await Promise.all([begun, Bun.sleep(instant)]);
    await kill();
    // Also once a restarted server has seen every node.
    await until("the end of the rotation", async () => (await show()) === "none", 240_000);
    for (const member of members) {
      const trusted = trustedBy(member);
      expect(trusted).toHaveLength(1);
      expect(before).not.toContain(trusted[0] ?? "");
    }
  }
}

asRoot("a control plane that is killed", () => {
  const longMs = inFull ? 3_600_000 : 300_000;
  test.concurrent(
    "in migrations between certificate versions: no ping is lost",
    () => withScene(migrate),
    longMs,
  );
  test.concurrent(
    "while nodes get IPv6 addresses: each engine starts again once",
    () => withScene(addSecondAddresses),
    longMs,
  );
  test.concurrent("in CA rotations: each ends by itself", () => withScene(rotate), longMs);
});
