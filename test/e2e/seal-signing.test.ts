// A signer follows the documents: each line of docs/security.md is typed on a terminal, with the compiled executable, the real
// ssh-keygen and a plain Ed25519 key, against a real control plane with real nodes. Packets show what is in force.

import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { Event } from "../../src/api/events.ts";
import { NodeConfig } from "../../src/protocol/organization-files.ts";
import { agent, agentJson, buildAgent, cleanEnvironment, startControlPlane } from "../support/agent.ts";
import { statusOf } from "../support/daemon.ts";
import { blocksOf } from "../support/documents.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeMembers, type Member } from "../support/members.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization, owner } from "../support/overlay.ts";
import { makeSshKey } from "../support/ssh-keys.ts";
import { temporaryDirectory } from "../support/temporary.ts";
import { until } from "../support/until.ts";

buildAgent();

const passphrase = "a long passphrase of ann";
/** `open`: a rule has it from the beginning. `later`: a rule that comes after the seal is enforced. */
const ports = { open: 5001, later: 5002 };

const blocks = blocksOf("docs/security.md");
/** The block with this first line. */
function documented(first: string): string {
  const block = blocks.find(({ key }) => key === `docs/security.md: ${first}`);
  if (block === undefined) throw new Error(`docs/security.md has no block that begins with ${first}`);
  return block.text;
}

const listener = (file: string) => `
  const { appendFileSync } = require("node:fs");
  for (const port of [${Object.values(ports).join()}])
    await Bun.udpSocket({ hostname: "::", port, socket: { data(socket, data) {
      appendFileSync(${JSON.stringify(file)}, port + " " + data.toString() + "\\n");
    } } });
  setInterval(() => {}, 1000);`;

const sender = (to: string, text: string) => `
  const socket = await Bun.udpSocket({ hostname: "::" });
  for (;;) { for (const port of [${Object.values(ports).join()}]) {
    try { socket.send(${JSON.stringify(text)}, port, ${JSON.stringify(to)}); } catch {} } await Bun.sleep(40); }`;

/** The machine of the signer: a home directory with a key, and `agent` on the path. */
function makeSigner(root: string) {
  const [home, programs] = [join(root, "ann"), join(root, "bin")];
  for (const each of [home, programs, join(home, ".ssh")]) mkdirSync(each, { recursive: true, mode: 0o700 });
  symlinkSync(agent, join(programs, "agent"));
  makeSshKey(join(home, ".ssh/id_ed25519"));
  const path = `${programs}:${process.env["PATH"] ?? ""}`;
  let tookMs = 0;
  return {
    tookMs: () => tookMs,
    /** Types these lines, and the answer to each question of `answers` when it is shown. */
    async type(lines: string, answers: Readonly<Record<string, string>> = {}): Promise<string> {
      let shown = "";
      let answered = 0;
      const begin = performance.now();
      const child = Bun.spawn(["sh", "-eu", "-c", lines], {
        cwd: home,
        env: cleanEnvironment({ TERM: "xterm", HOME: home, PATH: path }),
        terminal: {
          data(terminal, data) {
            shown += Buffer.from(data).toString();
            const question = Object.keys(answers).find((each) => shown.slice(answered).endsWith(each));
            if (question === undefined) return;
            answered = shown.length;
            terminal.write(`${answers[question]}\r`);
          },
        },
      });
      const status = await child.exited;
      tookMs += performance.now() - begin;
      if (status !== 0) throw new Error(`${lines}\nended with ${status}:\n${shown}`);
      return shown;
    },
  };
}

asRoot("with root", () => {
  describeEngines(
    "a signer who follows the documents",
    (engine) => {
      test("seals an organization, and then a change takes effect with the signature and not before", async () => {
        using directory = temporaryDirectory();
        using lan = makeLan(["hub", "db"]);
        await using plane = await startControlPlane(join(directory.path, "server"));
        const acme = await makeOrganization(plane);
        const post = async (path: string, body: object) => {
          const answer = await acme.api("POST", `/api/org/acme/${path}`, body);
          if (!answer.ok) throw new Error(await answer.text());
        };
        const open = (port: number) =>
          post("firewall_rules/", {
            direction: "inbound",
            protocol: "udp",
            ports: String(port),
            peer: { any: true },
            target: { group: "db" },
          });
        await post("groups/", { name: "db" });
        await open(ports.open);
        await using made = await makeMembers(acme, lan, directory.path, engine.nebula);
        const [hub, db] = made.members as [Member, Member];
        await acme.api("PATCH", `/api/org/acme/nodes/${db.id}/`, { groups: ["db"] });
        const heard = join(directory.path, "heard");
        writeFileSync(heard, "");
        db.host.spawn([process.execPath, "-e", listener(heard)]);
        let sent = 0;
        /** Those that arrive until the open one does, and as long again. */
        const arriving = async (to = db.ip) => {
          const text = `packet-${++sent}`;
          const child = hub.host.spawn([process.execPath, "-e", sender(to, text)]);
          const arrived = () =>
            Object.values(ports).filter((port) => readFileSync(heard, "utf8").includes(`${port} ${text}\n`));
          await until(() => arrived().includes(ports.open), {
            what: "a packet that a rule allows",
            ms: 20_000,
          });
          await Bun.sleep(500);
          child.kill("SIGKILL");
          await child.exited;
          return arrived();
        };
        const sealedAs = (hash: string, isEnforced: boolean) =>
          until(
            async () => {
              for (const { places } of made.members) {
                const { seal } = await statusOf(places, "acme");
                const isSo = seal?.hash === hash && (seal.enforced === true) === isEnforced;
                if (!isSo || seal.objections.length > 0) return false;
              }
              return true;
            },
            { what: `seal ${hash} on each node`, ms: 30_000 },
          );
        const hashIn = (shown: string) => /Published seal \d+: ([0-9a-f]{64})/.exec(shown)?.[1] ?? "";

        const ann = makeSigner(directory.path);
        await ann.type(`agent login ${plane.url} --email ${owner.email}`, { "Password: ": owner.password });
        const first = await ann.type(
          documented("agent admin seal init acme --observe --signer ~/.ssh/id_ed25519.pub > acme-1.seal"),
        );
        await sealedAs(hashIn(first), false);
        await ann.type(documented("agent admin seal ca acme acme-offline.key"), {
          "Passphrase of the CA key: ": passphrase,
          "Again: ": passphrase,
        });
        const asked: Record<string, string> = {
          "Passphrase of the CA key: ": passphrase,
          'Sign this? Type "sign": ': "sign",
        };
        for (const { name, places } of made.members) {
          const flags = ["--config-root", places.configRoot];
          const { words } = v.parse(
            v.object({ words: v.array(v.string()) }),
            await agentJson(["key-words", ...flags]),
          );
          asked[`Words of the host key of ${name}: `] = words.join(" ");
        }
        const sign = "agent admin seal sign acme --ca acme-offline.key --key ~/.ssh/id_ed25519";
        await ann.type(documented(`${sign} --known acme-1.seal --privileged db`), asked);
        expect(await ann.type("agent admin seal pending acme")).toContain("No node waits");
        // A thief may know the key of the present CA: a limited one takes its place, without a lost tunnel.
        await ann.type(documented("agent admin ca rotate acme --limited"));
        await ann.type("agent admin ca rotate acme --now");
        await until(async () => (await ann.type("agent admin ca show acme")).includes("rotation: none"), {
          what: "the end of the rotation",
          ms: 60_000,
        });
        const enforced = await ann.type(documented(`${sign} --enforce`), asked);
        expect(enforced).toMatch(
          /networks: 10\.77\.0\.0\/16; networks behind nodes: none \(0\.0\.0\.0\/32\)/,
        );
        await sealedAs(hashIn(enforced), true);
        expect(await arriving()).toEqual([ports.open]);
        const facts = readFileSync(join(hub.places.configRoot, "acme/node-config.json"), "utf8");
        const [inside = ""] = v.parse(NodeConfig, JSON.parse(facts)).sealed_names?.["db"] ?? [];
        expect(inside).toMatch(/^fd[0-9a-f:]+$/);
        expect(await arriving(inside)).toEqual([ports.open]);

        const configOf = () => readFileSync(join(db.places.configRoot, "acme/config.yml"), "utf8");
        const before = configOf();
        await open(ports.later);
        await until(
          async () => JSON.stringify((await statusOf(db.places, "acme")).seal).includes(String(ports.later)),
          { what: "what the seal refuses", ms: 20_000 },
        );
        expect(await arriving()).toEqual([ports.open]);
        expect(configOf()).toBe(before);
        await until(
          async () => {
            const answer = await acme.api("GET", "/api/org/acme/events/?limit=1000");
            const events = v.parse(v.array(Event), await answer.json());
            return events.some(
              ({ type, after }) =>
                type === "node.seal_refused" && JSON.stringify(after).includes(String(ports.later)),
            );
          },
          { what: "the event of the refusal", ms: 20_000 },
        );
        const changed = await ann.type(documented(sign), asked);
        expect(changed).toContain(`udp/${ports.later} from ANY node to group "db"`);
        expect(changed).toContain(
          `+ access: udp/${ports.later} from ANYONE who has the control plane to ${db.name}`,
        );
        await sealedAs(hashIn(changed), true);
        expect(await arriving()).toEqual(Object.values(ports));
        process.stderr.write(`all lines of the signer: ${(ann.tookMs() / 1000).toFixed(1)} s\n`);
      }, 120_000);
    },
    ["1.12"],
  );
});
