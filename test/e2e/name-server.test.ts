// A name server of the overlay with real engines and the service of names: each node gets the names that it may see, and
// nobody else gets an answer.

import { expect, test } from "bun:test";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { readHosts } from "../../src/node/files/hosts.ts";
import { agent, agentJson, buildAgent, startControlPlane } from "../support/agent.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { until } from "../support/members.ts";
import { makeLan, type Host } from "../support/namespaces.ts";
import { makeOrganization, startEngine } from "../support/overlay.ts";
import { end, paste, post, type Node } from "../support/policy-nodes.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const Rules = v.array(v.looseObject({ id: v.number() }));
const Answers = v.array(v.string());
const Flooded = v.object({ answers: v.number(), bytes: v.number() });
const tool = (name: string) => join(import.meta.dir, "../support", name);

async function runTool(from: Host, name: string, ...words: string[]): Promise<unknown> {
  const child = Bun.spawn(from.inside([process.execPath, tool(name), ...words]), { stderr: "inherit" });
  return JSON.parse(await new Response(child.stdout).text());
}

asRoot("a name server", () => {
  describeEngines(
    "over tunnels",
    ({ nebula }) => {
      test("answers each node for what it sees, over UDP and TCP, bounds a flood, and nobody else", async () => {
        using directory = temporaryDirectory();
        const root = directory.path;
        await using plane = await startControlPlane(join(root, "server"));
        const acme = await makeOrganization(plane);
        using lan = makeLan(["hub", "web", "db", "lone", "outside"]);
        const enrol = (name: string, flags: string[] = []) =>
          paste(acme, { root, host: lan.host(name), engine: nebula }, [name], flags);
        const hub = await enrol("hub", ["--public-ip", lan.host("hub").address]);
        const [web, db, lone] = [await enrol("web"), await enrol("db"), await enrol("lone")];
        const list = v.parse(Rules, await (await acme.api("GET", "/api/org/acme/firewall_rules/")).json());
        for (const { id } of list) await acme.api("DELETE", `/api/org/acme/firewall_rules/${id}/`);
        const rule = (direction: string, protocol: string, ports: string, peer: unknown, target: unknown) =>
          post(acme, "firewall_rules/", { direction, protocol, ports, peer, target });
        await rule("outbound", "any", "any", { any: true }, { any: true });
        await rule("inbound", "tcp", "443", { group: "web" }, { group: "db" });
        for (const protocol of ["udp", "tcp"])
          await rule("inbound", protocol, "53", { any: true }, { node: hub.node_id });
        const setRole = async (is_name_server: boolean) => {
          const answer = await acme.api("PATCH", `/api/org/acme/nodes/${hub.node_id}/`, { is_name_server });
          expect(answer.status).toBe(200);
        };
        await setRole(true);
        const nodes = [hub, web, db, lone];
        const sync = (node: Node) =>
          agentJson([
            "check-auth",
            "--all",
            "--config-root",
            dirname(node.directory),
            "--overlay-binary",
            nebula,
          ]);
        for (const node of nodes) await sync(node);
        expect(readHosts(hub.directory)?.nodes.map(({ name }) => name)).toEqual(["hub", "web", "db", "lone"]);
        expect(readHosts(lone.directory)?.nodes.map(({ name }) => name)).toEqual(["hub", "lone"]);

        const etc = join(root, "etc");
        mkdirSync(etc);
        writeFileSync(join(etc, "hosts"), "127.0.0.1 localhost\n");
        const run = "/run/overlay-agent-names";
        const names = `${agent} names --config-root ${dirname(hub.directory)}`;
        const script = `mount --bind ${etc} /etc && mount -t tmpfs none /run && mkdir ${run}
          RUNTIME_DIRECTORY=${run} exec ${names} --run --peers-in 10.77.0.0/16`;
        const service = lan.host("hub").spawn(["unshare", "--mount", "sh", "-ec", script]);
        const said = () =>
          lan.host("hub").run(["nsenter", "-t", `${service.pid}`, "-m", "sh", "-c", `${names} 2>&1`]);
        await until("the service waits", async () => said().includes("its interface does not exist"));
        let engines = await Promise.all(
          nodes.map(({ host, directory: own }) => startEngine(host, nebula, own)),
        );
        await until("the service answers", async () =>
          said().includes(`answered at ${hub.ip_address}, port 53`),
        );

        const asked = ["web", "db", "lone", "hub", "nothing"].map((name) => `${name}.acme.internal`);
        const ask = async (from: Host, transport: string, about: readonly string[]) =>
          v.parse(Answers, await runTool(from, "ask-names.ts", hub.ip_address, transport, ...about));
        const answered = (node: Node) =>
          until(
            `${node.name} is answered`,
            async () => (await ask(node.host, "udp", ["hub.acme.internal"]))[0] !== "silence",
          );
        for (const node of [web, lone]) await answered(node);
        const seen = [web, db].map(({ ip_address }) => `NOERROR ${ip_address}`);
        for (const transport of ["udp", "tcp"]) {
          const own = `NOERROR ${hub.ip_address}`;
          expect(await ask(web.host, transport, asked)).toEqual([...seen, "NXDOMAIN", own, "NXDOMAIN"]);
          const alone = ["NXDOMAIN", "NXDOMAIN", `NOERROR ${lone.ip_address}`, own, "NXDOMAIN"];
          expect(await ask(lone.host, transport, asked)).toEqual(alone);
          expect(await ask(web.host, transport, ["google.com", "web.home.internal"])).toEqual([
            "REFUSED",
            "REFUSED",
          ]);
        }
        // A machine of the local network, which the kernel lets through to the overlay's address.
        const outside = lan.host("outside");
        outside.run(["ip", "route", "add", `${hub.ip_address}/32`, "via", lan.host("hub").address]);
        for (const transport of ["udp", "tcp"])
          expect(await ask(outside, transport, ["hub.acme.internal"])).toEqual(["silence"]);

        const from = performance.now();
        const flooded = v.parse(
          Flooded,
          await runTool(lone.host, "names-flood.ts", hub.ip_address, "53", "30000"),
        );
        expect(flooded.answers).toBeGreaterThan(0);
        expect(flooded.answers).toBeLessThanOrEqual(100 * (2 + Math.ceil((performance.now() - from) / 1000)));
        await answered(web);

        // The engine's interface goes and returns.
        await engines[0]?.stop();
        engines = [await startEngine(hub.host, nebula, hub.directory), ...engines.slice(1)];
        await answered(web);
        expect(await ask(web.host, "tcp", asked.slice(0, 2))).toEqual(seen);

        // A revoked node, and then the end of the role.
        await acme.api("DELETE", `/api/org/acme/nodes/${db.node_id}/`);
        await sync(hub);
        await until(
          "db is unknown",
          async () => (await ask(web.host, "udp", ["db.acme.internal"]))[0] === "NXDOMAIN",
        );
        await setRole(false);
        await sync(hub);
        expect(readHosts(hub.directory)?.peers).toBeUndefined();
        await until(
          "the port is closed",
          async () => !hub.host.run(["ss", "-Hlnut", "sport = :53"]).includes(":53"),
        );
        expect(service.exitCode).toBeNull();
        end(engines);
      }, 180_000);
    },
    ["sid"],
  );
});
