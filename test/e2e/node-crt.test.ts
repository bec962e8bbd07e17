// Services on nodes can use node.crt and node.key: the system's openssl accepts them at both ends of a TLS connection
// through the overlay, and refuses those of another organization.

import { describe, expect, test } from "bun:test";
import { openSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildAgent, startControlPlane } from "../support/agent.ts";
import { inCi, installMissing, runSync } from "../support/debian.ts";
import { asRoot, describeEngines } from "../support/engines.ts";
import { makeLan, startPing, type Host } from "../support/namespaces.ts";
import { makeOrganization, registerNode, startEngine, type Registered } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();
const missing = installMissing(["/usr/bin/openssl"]);
if (missing !== undefined && inCi) throw new Error(missing);
const port = 8443;

/** One file with leaf and CA, which openssl uses as its certificate and as its trusted CA. */
const tlsFlags = ({ directory }: Registered) => [
  "-cert",
  join(directory, "node.crt"),
  "-key",
  join(directory, "node.key"),
  "-CAfile",
  join(directory, "node.crt"),
  "-verify_return_error",
];

type Handshake = { status: number; output: string };

/** One connection to the service, which returns the line reversed. */
async function connect(host: Host, to: Registered, as: readonly string[]): Promise<Handshake> {
  const names = ["-verify_hostname", `${to.name}.acme.internal`, "-verify_ip", to.ip_address];
  const target = ["-connect", `${to.ip_address}:${port}`, "-brief", ...names];
  const client = Bun.spawn(host.inside(["timeout", "20", "openssl", "s_client", ...target, ...as]), {
    stdin: "pipe",
    stdout: "pipe",
    stderr: "pipe",
  });
  let output = "";
  const take = async (stream: ReadableStream<Uint8Array>) => {
    for await (const chunk of stream) output += new TextDecoder().decode(chunk);
  };
  const reading = Promise.all([take(client.stdout), take(client.stderr)]);
  await client.stdin.write("secret\n");
  await client.stdin.flush();
  for (let waited = 0; !output.includes("terces") && waited < 15_000; waited += 20) {
    if (client.exitCode !== null) break;
    await Bun.sleep(20);
  }
  await client.stdin.end();
  const status = await client.exited;
  await reading;
  return { status, output };
}

(missing === undefined ? asRoot : describe.skip)("node.crt", () => {
  describeEngines("TLS between two nodes", ({ nebula }) => {
    test("both sides verify the other, and both refuse a foreign certificate", async () => {
      using directory = temporaryDirectory();
      using lan = makeLan(["alpha", "beta"]);
      await using plane = await startControlPlane(join(directory.path, "server"));
      const acme = await makeOrganization(plane);
      const rule = { direction: "inbound", protocol: "tcp", ports: String(port) };
      const everybody = { peer: { any: true }, target: { any: true } };
      const made = await acme.api("POST", "/api/org/acme/firewall_rules/", { ...rule, ...everybody });
      expect(made.status).toBe(201);
      const token = await acme.makeToken(["--uses", "2", "--lighthouse"]);
      const enrol = (name: string, flags: string[] = []) =>
        registerNode(acme, join(directory.path, name), name, token, ["--overlay-binary", nebula, ...flags]);
      const alpha = await enrol("alpha", ["--is-lighthouse", "--public-ip", lan.host("alpha").address]);
      const beta = await enrol("beta");
      const other = await makeOrganization(plane, "other", "10.78.0.0/16");
      const stranger = await registerNode(other, join(directory.path, "x"), "x", await other.makeToken());

      for (const each of [alpha, beta]) {
        const crt = join(each.directory, "node.crt");
        for (const purpose of ["sslserver", "sslclient"])
          expect(runSync(["openssl", "verify", "-purpose", purpose, "-CAfile", crt, crt])).toContain("OK");
        const text = runSync(["openssl", "x509", "-noout", "-text", "-in", crt]);
        expect(text).toContain(`URI:spiffe://acme.internal/node/${each.node_id}`);
      }

      using hub = await startEngine(lan.host("alpha"), nebula, alpha.directory);
      using spoke = await startEngine(lan.host("beta"), nebula, beta.directory);
      const ping = startPing(lan.host("beta"), alpha.ip_address);
      await ping.reply(20_000);
      await ping.stop();

      const log = join(directory.path, "s_server.log");
      const accept = ["-accept", `${alpha.ip_address}:${port}`, "-rev", "-Verify", "1"];
      const service = lan
        .host("alpha")
        .spawn(["openssl", "s_server", ...accept, ...tlsFlags(alpha)], { stdout: openSync(log, "a") });
      for (let waited = 0; waited < 10_000; waited += 50) {
        if (lan.host("alpha").run(["ss", "-Hltn"]).includes(`:${port}`)) break;
        await Bun.sleep(50);
      }

      const good = await connect(lan.host("beta"), alpha, tlsFlags(beta));
      expect(good.output).toContain("Verification: OK");
      expect(good.output).toContain(`Verified peername: alpha.acme.internal`);
      expect(good.output).toContain("terces");
      expect(good.status).toBe(0);

      // The service refuses another organization's certificate, and a node refuses another organization's service.
      const own = tlsFlags(beta);
      const foreign = tlsFlags(stranger);
      const refusedThere = await connect(lan.host("beta"), alpha, [...foreign.slice(0, 4), ...own.slice(4)]);
      expect(refusedThere.output).not.toContain("terces");
      expect(refusedThere.output).toMatch(/alert/);
      const refusedHere = await connect(lan.host("beta"), alpha, [...own.slice(0, 4), ...foreign.slice(4)]);
      expect(refusedHere.output).toMatch(/verify error|certificate verify failed/);
      expect(refusedHere.status).not.toBe(0);
      // The service also refuses a client without a certificate.
      const bare = await connect(lan.host("beta"), alpha, own.slice(4));
      expect(bare.output).not.toContain("terces");
      service.kill();
      await service.exited;
      expect(readFileSync(log, "utf8")).toMatch(/peer did not return a certificate|certificate required/);
      writeFileSync(log, "");
      expect(hub.log() + spoke.log()).not.toContain("panic");
    }, 90_000);
  });
});
