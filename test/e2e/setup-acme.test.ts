// Three commands to a network whose control plane has a certificate of a public authority: real Pebble, HTTP-01 on port 80,
// a certificate for the machine's address. The machines do not know Pebble's root: the join keys pin it.

import { expect, test } from "bun:test";
import { copyFileSync, mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import * as v from "valibot";
import { describeAcme, startPebble } from "../support/acme-servers.ts";
import { buildAgent } from "../support/agent.ts";
import { makeLan } from "../support/namespaces.ts";
import { describeMachine, makeMachine } from "../support/nspawn.ts";
import { temporaryDirectory } from "../support/temporary.ts";

const Setup = v.pipe(
  v.string(),
  v.parseJson(),
  v.object({ url: v.string(), ca_fingerprint: v.optional(v.string()), join_keys: v.array(v.string()) }),
);

describeMachine("setup", () => {
  describeAcme("with a certificate of Pebble", () => {
    test("three commands make a network, whose keys pin the authority's root", async () => {
      await using stack = new AsyncDisposableStack();
      const { path: directory } = stack.use(temporaryDirectory());
      const lan = stack.use(makeLan(["control", "web", "db"]));
      const pebble = stack.use(await startPebble({ host: lan.host("control") }));
      const write = (path: string, text: string) => {
        mkdirSync(dirname(join(directory, path)), { recursive: true });
        writeFileSync(join(directory, path), text);
      };
      write("etc/acme-root.pem", await pebble.root());
      write("etc/acme-trust.pem", pebble.trust);
      write("usr/local/bin/agent", "");
      copyFileSync(buildAgent(), join(directory, "usr/local/bin/agent"));
      const [control, web, db] = ["control", "web", "db"].map((name) =>
        stack.use(makeMachine(lan.host(name).namespace, directory)),
      );
      if (control === undefined || web === undefined || db === undefined) throw new Error("No machines");
      await Promise.all([control, web, db].map((machine) => machine.boot()));
      await web.must("hostname web");
      await db.must("hostname db");
      const { address } = lan.host("control");
      const begin = performance.now();
      const line = `agent setup --yes --public-name ${address} --email ada@example.org --org-slug acme`;
      const said = await control.must(
        `${line} --tls acme --acme-directory ${pebble.directory} --acme-ca /etc/acme-trust.pem --tls-ca /etc/acme-root.pem --json`,
        120_000,
      );
      const { join_keys: keys, ca_fingerprint: fingerprint } = v.parse(Setup, said);
      expect(fingerprint).toMatch(/^sha256:[0-9a-f]{64}$/);
      await web.must(`agent up ${keys[0]}`);
      await db.must(`agent up ${keys[1]}`);
      await web.until("ping -c 1 -W 1 10.77.0.3", 20_000);
      const seconds = (performance.now() - begin) / 1000;
      process.stdout.write(
        `with Pebble, three commands to the first ping: ${seconds.toFixed(1)} s (bar 75)\n`,
      );
    }, 300_000);
  });
});
