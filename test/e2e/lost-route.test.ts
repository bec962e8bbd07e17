// A machine whose route to its own network was replaced by an engine of an earlier version, which ended: the line that
// doctor prints brings the network back, for IPv4 and IPv6.

import { expect, test } from "bun:test";
import { join } from "node:path";
import { agent, buildAgent, startControlPlane } from "../support/agent.ts";
import { placesBelow, registerDesktop } from "../support/daemon.ts";
import { asRoot } from "../support/engines.ts";
import { makeLan } from "../support/namespaces.ts";
import { makeOrganization } from "../support/overlay.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

asRoot("a lost route to the machine's own network", () => {
  test("is named by doctor, and the printed line brings it back", async () => {
    using directory = temporaryDirectory();
    await using plane = await startControlPlane(join(directory.path, "server"));
    const acme = await makeOrganization(plane);
    using lan = makeLan(["here", "printer"]);
    const [here, printer] = [lan.host("here"), lan.host("printer")];
    for (const [at, host] of lan.hosts.entries())
      host.run(["ip", "addr", "add", `fd00:7::${at + 1}/64`, "dev", "eth0", "nodad"]);
    const places = placesBelow(join(directory.path, "here"), "/usr/bin/nebula");
    await registerDesktop(acme, places, await acme.makeToken(), "here");
    const inHere = (argv: string[]) => {
      const { stdout, exitCode } = Bun.spawnSync(here.inside(argv), { stderr: "ignore" });
      return { text: stdout.toString(), status: exitCode };
    };
    const doctor = () => {
      const lines = inHere([agent, "doctor", ...places.flags]).text.split("\n");
      const at = lines.findIndex((line) => /acme interfaces/.test(line));
      return { line: lines[at] ?? "", cure: lines[at + 1]?.trim() ?? "" };
    };
    const reaches = (address: string) => inHere(["ping", "-c", "1", "-W", "1", address]).status === 0;
    expect(doctor().line).toMatch(/^ok /);
    for (const [network, address] of [
      ["192.0.2.0/24", printer.address],
      ["fd00:7::/64", "fd00:7::2"],
    ] as const) {
      expect([network, reaches(address)]).toEqual([network, true]);
      here.run(["ip", "route", "del", network, "dev", "eth0"]);
      expect([network, reaches(address)]).toEqual([network, false]);
      const { line, cure } = doctor();
      expect(line).toContain(`eth0 is in ${network}, but this machine has no route there`);
      const [command = ""] = /ip route replace .*/.exec(cure) ?? [];
      here.run(["sh", "-c", command]);
      expect([network, reaches(address)]).toEqual([network, true]);
      expect(doctor().line).toMatch(/^ok /);
    }
  }, 120_000);
});
