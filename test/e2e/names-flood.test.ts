// The service of names under floods, from the machine and from a peer: it goes on, its memory is bounded, and the peer never
// gets an answer, even where the administrator lets packets for loopback addresses in from outside.

import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { writeHosts } from "../../src/node/files/hosts.ts";
import { resolverAddress } from "../../src/platform/names-places.ts";
import { agent, buildAgent } from "../support/agent.ts";
import { asRoot } from "../support/engines.ts";
import { makeLan, type Host } from "../support/namespaces.ts";
import { writeOrganization } from "../support/organization-engines.ts";
import { inFull } from "../support/soak.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const { host: address, port } = resolverAddress;
const packets = inFull ? 1_000_000 : 30_000;
const Answers = v.object({ answers: v.number(), bytes: v.number() });
const flood = async (from: Host, count: number) => {
  const tool = join(import.meta.dir, "../support/names-flood.ts");
  const child = Bun.spawn(from.inside([process.execPath, tool, address, `${port}`, `${count}`]), {
    stderr: "inherit",
  });
  return v.parse(Answers, JSON.parse(await new Response(child.stdout).text()));
};
const ask = (from: Host) => {
  const source = `const { askResolver } = await import("${join(import.meta.dir, "../../src/node/names/resolver.ts")}");
    for (let at = 0; at < 5; at++) { const found = await askResolver("beta.acme.internal"); if (found) { console.log(found.join()); break; } }`;
  return from.run([process.execPath, "-e", source]).trim();
};
const anonymousKb = (pid: number) =>
  Number(/RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
/** Datagrams that programs of the host got. */
const received = (host: Host) => Number(/^Udp: (\d+)/m.exec(host.run(["cat", "/proc/net/snmp"]))?.[1]);

asRoot("the service of names", () => {
  test(
    "answers after floods from the machine and from a peer, with bounded memory, and never the peer",
    async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["node", "peer"]);
      const [node, peer] = [lan.host("node"), lan.host("peer")];
      const root = join(directory.path, "root");
      const etc = join(directory.path, "etc");
      for (const each of [root, etc]) mkdirSync(each);
      writeFileSync(join(etc, "hosts"), "127.0.0.1 localhost\n");
      writeOrganization(root, "acme");
      const beta = { id: 2, name: "beta", ip: "10.77.0.2" };
      writeHosts(join(root, "acme"), { schema: 1, version: 1, view: "all", nodes: [beta], aliases: [] });
      const script = `mount --bind ${etc} /etc && mount -t tmpfs none /run && RUNTIME_DIRECTORY=/run exec ${agent} names --run --config-root ${root}`;
      const service = node.spawn(["unshare", "--mount", "sh", "-ec", script]);
      while (!node.run(["ss", "-lnu"]).includes(`${address}:${port}`)) await Bun.sleep(20);

      await flood(node, packets / 10);
      const before = anonymousKb(service.pid);
      const own = await flood(node, packets);
      expect(own.answers).toBeGreaterThan(packets / 100);
      expect(ask(node)).toBe("10.77.0.2");

      // The peer has no loopback network of its own, so that its packets for this address go out.
      peer.run(["ip", "addr", "flush", "dev", "lo"]);
      peer.run(["ip", "route", "add", `${address}/32`, "via", node.address]);
      for (const each of [node, peer]) {
        const got = received(node);
        if (each === peer) {
          for (const host of [node, peer]) host.run(["sysctl", "-qw", "net.ipv4.conf.all.route_localnet=1"]);
        }
        expect(await flood(peer, packets)).toEqual({ answers: 0, bytes: 0 });
        // Only then does the kernel let them in: the service itself drops them.
        if (each === peer) expect(received(node) - got).toBeGreaterThan(packets / 100);
        else expect(received(node) - got).toBe(0);
      }
      expect(ask(node)).toBe("10.77.0.2");
      expect(service.exitCode).toBeNull();
      expect(anonymousKb(service.pid) - before).toBeLessThan(24_000);
    },
    inFull ? 900_000 : 90_000,
  );
});
