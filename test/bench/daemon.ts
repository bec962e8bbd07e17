// `bun test/bench/daemon.ts [ORGANIZATIONS] [CHANGES] [QUIET_MINUTES]`: a daemon with real engines and a control plane in
// its own namespace. Measures anonymous memory and CPU after some quiet minutes, round trips on the socket, start of
// `agent status`, and the time from a change on the control plane to the engine's reload. Needs root.

import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { connectDaemon } from "../../src/daemon/ipc/client.ts";
import { Node } from "../../src/protocol/node.ts";
import { paths } from "../support/paths.ts";
import { realSystem } from "../../src/base/system.ts";
import { agent, agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { bridgePort } from "../support/bridge.ts";
import { placesBelow, startDaemon, untilStatus, type Places } from "../support/daemon.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, type Organization } from "../support/overlay.ts";
import { measureStartup } from "../support/startup.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { anonymousMb, figure, print, processorSeconds, quantile } from "./measure.ts";

const [count = 1, changes = 30, quietMinutes = 10] = process.argv.slice(2).map(Number);
/** Bar for one organization after ten quiet minutes. The kernel can drop file pages, so RssAnon counts, not VmRSS. */
const maxAnonymousMb = 10;
const shown = (what: string, values: number[]) => {
  figure(what, values, { unit: "ms", digits: 2 });
  figure(`${what}, p99`, quantile(values, 0.99), { unit: "ms", digits: 2 });
};

buildAgent();
using directory = temporaryDirectory();
await using plane = await startControlPlane(join(directory.path, "server"));
const places = placesBelow(join(directory.path, "desk"), "/usr/bin/nebula");
mkdirSync(places.configRoot, { recursive: true });
const organizations: Organization[] = [];
for (let at = 0; at < count; at++) {
  const organization = await makeOrganization(plane, `org${at}`, `10.${80 + at}.0.0/16`);
  organizations.push(organization);
  const target = ["--api-base", plane.url, "--org-slug", organization.slug, "--node-name", "desk"];
  const how = ["--registration-token-file", "-", "--mode", "desktop", "--no-start"];
  await agentJson(["register", ...target, ...how, ...places.flags], {
    input: await organization.makeToken(),
  });
}
using lan = makeLan(["desk"]);
using bridge = await bridgePort(lan.host("desk"), directory.path, Number(new URL(plane.url).port));
let daemon = await startDaemon(lan.host("desk"), places);
for (const { slug } of organizations)
  await untilStatus(
    places,
    slug,
    ({ state, last_checkin_at }) => state === "running" && last_checkin_at !== undefined,
  );

async function measureQuiet(what: string): Promise<void> {
  const before = processorSeconds(daemon.pid);
  await Bun.sleep(quietMinutes * 60_000);
  const percent = ((processorSeconds(daemon.pid) - before) / (quietMinutes * 60)) * 100;
  const named = `${count} organizations${what}, quiet for ${quietMinutes} minutes`;
  const bar = count === 1 ? { most: maxAnonymousMb } : {};
  figure(`${named}: RssAnon`, anonymousMb(daemon.pid), { unit: "MB", ...bar });
  figure(`${named}: processor`, percent, { unit: "%", digits: 2 });
}
// The load comes first: the user's access token expires during the quiet minutes.
await roundTrips(places);
await statusStart(places);
await changesToReload(organizations[0]);
figure("after the load: RssAnon", anonymousMb(daemon.pid), { unit: "MB" });
await restart("SIGTERM");
await measureQuiet("");
await restart("SIGUSR2");
await measureQuiet(", engines adopted from the previous daemon");

daemon.signal("SIGTERM");
await daemon.exited;
bridge[Symbol.dispose]();

/** SIGTERM stops the engines too; SIGUSR2 leaves them to the next daemon. */
async function restart(signal: "SIGTERM" | "SIGUSR2"): Promise<void> {
  daemon.signal(signal);
  await daemon.exited;
  daemon = await startDaemon(lan.host("desk"), places);
}

async function roundTrips({ socketPath }: Places): Promise<void> {
  const client = await connectDaemon({ kind: "socket", path: socketPath }, realSystem(), { patient: false });
  for (const action of ["version", "status"]) {
    const times: number[] = [];
    for (let at = 0; at < 2000; at++) {
      const from = performance.now();
      await client.request({ action });
      times.push(performance.now() - from);
    }
    shown(`round trip of ${action}`, times);
  }
  client.close();
}

async function statusStart({ flags }: Places): Promise<void> {
  const status = { name: "agent status", argv: [agent, "status", ...flags] };
  for (const { name, p50, p90, ratio } of await measureStartup(directory.path, 60, [status]))
    print(
      `start of ${name}: p50 ${p50.toFixed(1)} ms, p90 ${p90.toFixed(1)} ms, ${ratio.toFixed(2)} times the empty program`,
    );
}

/** Time from the answer to a change until the engine's log shows the reload. */
async function changesToReload(organization: Organization | undefined): Promise<void> {
  if (organization === undefined) return;
  const { slug, api } = organization;
  const log = join(places.stateDb, "../logs", `${slug}.log`);
  const reloads = () => readFileSync(log, "utf8").match(/refreshed from disk/g)?.length ?? 0;
  const [node] = v.parse(v.array(Node), await (await api("GET", paths.nodes(slug))).json());
  const times: number[] = [];
  for (let at = 0; at < changes; at++) {
    const was = reloads();
    const { status } = await api("PATCH", paths.node(slug, node?.id ?? 0), { groups: [`group${at}`] });
    if (status !== 200) throw new Error(`PATCH: ${status}`);
    const from = performance.now();
    while (reloads() === was) {
      if (performance.now() - from > 20_000) throw new Error(`No reload after change ${at}`);
      await Bun.sleep(1);
    }
    times.push(performance.now() - from);
    // The daemon polls again within this time.
    await Bun.sleep(1500);
  }
  shown("change to reload", times);
}
