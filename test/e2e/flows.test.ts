// Flows of real nodes with known traffic: reported where the organization asks for it, none missing, none invented.

import { expect, test } from "bun:test";
import { join } from "node:path";
import * as v from "valibot";
import { Flows } from "../../src/api/flows.ts";
import { readCollected } from "../../src/node/files/flows-state.ts";
import { buildAgent } from "../support/agent.ts";
import { command } from "../support/daemon.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeHealingScene } from "../support/healing-scene.ts";
import { until, type Member } from "../support/members.ts";

buildAgent();

const server = `
  require("node:net").createServer((s) => s.on("error", () => {}).end("x")).listen(5000);
  const s = require("node:dgram").createSocket("udp4"); s.bind(6000); s.on("message", (d, from) => s.send(d, from.port, from.address));
  console.log("ready"); setInterval(() => {}, 1000);`;
const client = `
  const [, address, times] = process.argv;
  setTimeout(() => process.exit(1), 10_000).unref();
  for (let n = 0; n < Number(times); n++) {
    await new Promise((done) => { const s = require("node:net").connect(5000, address); s.on("data", () => {}).on("close", done).on("error", done); });
    await new Promise((done) => { const s = require("node:dgram").createSocket("udp4"); s.on("message", () => { s.close(); done(); }); s.send("x", 6000, address); });
  }`;
const tables = ({ host }: Member) => host.run(["nft", "list", "tables"]);
const isCounting = (member: Member) => tables(member).includes("overlay-agent-flows-acme");
/** A stop collects what was counted, and the next check-in reports it. */
async function collect(member: Member): Promise<void> {
  const run = async (word: string) =>
    expect(await command(member.places, [word])).toMatchObject({ status: 0 });
  await run("stop");
  await until(
    "what was counted",
    () => readCollected(join(member.places.configRoot, "acme")) !== undefined,
    10_000,
  );
  await run("start");
  await run("sync-config");
}

asRoot("flows", () => {
  describeEngines(
    "of two nodes",
    ({ nebula }) => {
      test("are reported by both ends, told by status, and refused by root of a machine", async () => {
        await using scene = await makeHealingScene(nebula);
        const { a, b, plane } = scene;
        const status = async (member: Member) => (await command(member.places, ["status"])).stdout;
        expect(isCounting(a)).toBe(false);
        expect(await status(a)).not.toContain("flows");
        const admin = async (...words: string[]) => {
          const done = await plane.admin(words);
          expect(done).toMatchObject({ status: 0 });
          return done.stdout;
        };
        await admin("rule", "create", "acme", "--protocol", "tcp", "--ports", "5000");
        await admin("rule", "create", "acme", "--protocol", "udp", "--ports", "6000");
        await admin("org", "update", "acme", "--flows", "on");
        for (const member of [a, b]) await until("the table", () => isCounting(member), 20_000);
        expect(await status(a)).toContain("flows are reported: which peers this machine talks to");
        const programs = b.host.spawn([process.execPath, "-e", server]);
        a.host.run(["ping", "-c", "3", "-W", "5", b.ip]);
        await Bun.sleep(500);
        a.host.run([process.execPath, "-e", client, b.ip, "25"]);
        // No rule lets it through: only the sender sees it.
        a.host.run(["bash", "-c", `echo x >/dev/udp/${b.ip}/6009`]);
        programs.kill();
        await programs.exited;
        for (const member of [a, b]) await collect(member);
        const list = async () => v.parse(Flows, JSON.parse(await admin("flow", "list", "acme", "--json")));
        const lines = ({ flows }: Flows) =>
          flows
            .filter(({ from_name: from, to_name: to }) => from === "a" && to === "b")
            .map(({ protocol, port, flows, unanswered, seen_by: side }) =>
              [protocol, port, flows, unanswered, side].join(" "),
            )
            .sort();
        expect(lines(await list())).toEqual([
          expect.stringMatching(/^icmp {2}\d+ 0 both$/),
          "tcp 5000 25 0 both",
          "udp 6000 25 0 both",
          "udp 6009 1 1 sender",
        ]);
        // Unicast of the two alone: the probes of the agents are flows too.
        expect((await list()).flows.filter(({ from, to }) => from === null || to === null)).toEqual([]);

        expect(await command(a.places, ["sync-config", "--no-flows"])).toMatchObject({ status: 0 });
        await until("the end of the table", () => !isCounting(a), 20_000);
        expect(await status(a)).toContain("flows are not reported, as root of this machine said");
        expect(isCounting(b)).toBe(true);
        expect(await command(a.places, ["sync-config", "--flows"])).toMatchObject({ status: 0 });
        await until("the table", () => isCounting(a), 20_000);
        await admin("org", "update", "acme", "--flows", "off");
        for (const member of [a, b]) await until("the end of the table", () => !isCounting(member), 20_000);
        expect((await list()).flows).toEqual([]);
      }, 120_000);
    },
    ["1.12"],
  );
});
