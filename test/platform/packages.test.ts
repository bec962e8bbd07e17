// The advice for a program that a package owns: a command that works on this machine.

import { expect, test } from "bun:test";
import { existsSync } from "node:fs";
import { findOwner, findPackageManager } from "../../src/platform/packages.ts";
import { realSystem } from "../../src/base/system.ts";

/** What apt-cache 2.6 prints of a package that was installed from a file. */
const fromFile = `overlay-agent:
  Installed: 0.2.0
  Candidate: 0.2.0
  Version table:
 *** 0.2.0 100
        100 /var/lib/dpkg/status
`;
const offered = `${fromFile.replace("*** 0.2.0 100", "*** 0.2.0 500")}     0.1.0 500
        500 file:/srv/repository ./ Packages
`;
const isDebian = existsSync("/usr/bin/dpkg-query") && existsSync("/usr/bin/apt-cache");

async function adviceFor(policy: string): Promise<string | undefined> {
  const asked: string[] = [];
  const answer = (stdout: string) => ({ status: 0, stdout, stderr: "", timedOut: false });
  const run = async (argv: readonly string[]) => {
    asked.push(argv.join(" "));
    if (argv[0] === "/usr/bin/dpkg-query") return answer("overlay-agent: /usr/bin/agent\n");
    return answer(policy);
  };
  const advice = await findOwner("/usr/bin/agent", { run });
  expect(asked).toEqual(["/usr/bin/dpkg-query -S /usr/bin/agent", "/usr/bin/apt-cache policy overlay-agent"]);
  return advice;
}

test.skipIf(!isDebian)(
  "a package that no repository has is updated from a file, others by the package manager",
  async () => {
    const byFile =
      "No package repository of this machine has overlay-agent: get the file of the newer package, then: apt-get install ./overlay-agent_….deb";
    expect(await adviceFor(fromFile)).toBe(byFile);
    expect(await adviceFor("")).toBe(byFile);
    expect(await adviceFor(offered)).toBe("Update it with: apt-get install --only-upgrade overlay-agent");
  },
);

test.skipIf(!isDebian)(
  "of a package of this system, whose repository apt knows, and of a file of nobody",
  async () => {
    const system = realSystem();
    const { stdout } = await system.run(["/usr/bin/apt-cache", "policy", "dpkg"]);
    const isOffered = /^ {8} *\d+ (?:https?|file|cdrom):/m.test(stdout);
    const advice = await findOwner("/usr/bin/dpkg-query", system);
    expect(advice).toStartWith(
      isOffered
        ? "Update it with: apt-get install --only-upgrade dpkg"
        : "No package repository of this machine has dpkg:",
    );
    expect(await findOwner(import.meta.path, system)).toBeUndefined();
  },
);

test("apt asks each source twice at most, so that a machine without a network does not wait for long", () => {
  const manager = findPackageManager();
  const refresh = manager?.install[0]?.join(" ") ?? "";
  if (manager?.name === "apt") expect(refresh).toContain("update -q -o Acquire::Retries=1");
  else expect(refresh).not.toContain("apt-get");
});
