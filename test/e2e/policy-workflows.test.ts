// The workflows of docs/policy.md from their first line, in a Debian tree that has the packages they install: the
// executable is installed from the control plane's releases, plans a merge request and applies it. Long runs install the
// packages too, in a tree as bare as the image.

import { expect, test } from "bun:test";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import * as v from "valibot";
import { hostTarget } from "../../build.ts";
import { buildAgent, root, startControlPlane } from "../support/agent.ts";
import { debianTree, overlayTree } from "../support/debian-tree.ts";
import { freePort } from "../support/free-port.ts";
import { describeMachine, machineTree } from "../support/nspawn.ts";
import { makeOrganization } from "../support/overlay.ts";
import { inFull } from "../support/soak.ts";
import { buildVersion, makeRelease, releaseKey } from "../support/releases.ts";
import { temporaryDirectory } from "../support/temporary.ts";

buildAgent();

const policy = `groups: {web: {}, db: {}}
rules:
  - {direction: outbound, peer: any, target: any}
  - {protocol: tcp, ports: 5432, peer: group:web, target: group:db}
tests:
  - accept: {from: group:web, to: group:db, protocol: tcp, port: 5432}
`;

const isShell = inFull ? /^(curl|apt-get) |agent admin policy/ : /^curl |agent admin policy/;

/** The shell lines of each workflow, in order. */
function workflows(url: string): string[][] {
  const text = readFileSync(join(root, "docs/policy.md"), "utf8");
  return [...text.matchAll(/```yaml\n(# \.(?:github|gitlab)[^]*?)```/g)].map(([, block = ""]) => {
    const lines: string[] = [];
    const walk = (value: unknown): void => {
      if (typeof value === "string" && isShell.test(value)) lines.push(value);
      else if (typeof value === "object" && value !== null) Object.values(value).forEach(walk);
    };
    walk(Bun.YAML.parse(block));
    return lines.map((line) => line.replaceAll("https://control.example.org", url));
  });
}

/** Runs the line $2 in the tree $1 as a container does: with processes and devices, in the checkout. */
const inTree = `mount -t proc proc "$1/proc" && mount --rbind /dev "$1/dev"
  exec /usr/sbin/chroot "$1" /bin/sh -ec "cd /checkout; $2"`;

describeMachine("the workflows of the documentation", () => {
  test("install the executable, plan and apply", async () => {
    await using stack = new AsyncDisposableStack();
    const { path: directory } = stack.use(temporaryDirectory());
    const releases = join(directory, "releases");
    const port = freePort();
    const releaseUrl = `http://127.0.0.1:${port}/releases`;
    const key = releaseKey;
    // What it hands out is signed by a key that it trusts.
    const signed = buildVersion(directory, "0.2.0");
    const executables = { [hostTarget()]: readFileSync(signed) };
    await makeRelease(releases, { version: "0.2.0", executables, releaseUrl }, key);
    const plane = stack.use(
      await startControlPlane(join(directory, "server"), ["--releases", releases], port, ([, ...flags]) => [
        signed,
        ...flags,
      ]),
    );
    await makeOrganization(plane);
    const token = async (role: string) => {
      const made = await plane.admin(["service-token", "create", "acme", role, "--role", role, "--json"]);
      return v.parse(v.object({ token: v.string() }), JSON.parse(made.stdout)).token;
    };
    const tokens = { plan: await token("member"), apply: await token("admin") };
    for (const lines of workflows(plane.url)) {
      const isBare = lines.some((line) => line.startsWith("apt-get "));
      expect(lines).toHaveLength(isBare ? 4 : 3);
      const { root: tree } = stack.use(overlayTree(isBare ? debianTree("bare", ["apt"]) : machineTree()));
      mkdirSync(join(tree, "checkout"));
      writeFileSync(join(tree, "checkout/policy.yaml"), policy);
      for (const line of lines) {
        const secrets = { POLICY_PLAN_TOKEN: tokens.plan, POLICY_APPLY_TOKEN: tokens.apply };
        const access = line.includes(" apply ") ? tokens.apply : tokens.plan;
        const child = Bun.spawn(["/usr/bin/unshare", "--mount", "/bin/sh", "-ec", inTree, "sh", tree, line], {
          env: {
            HOME: "/root",
            PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
            AGENT_API_BASE: plane.url,
            AGENT_ACCESS_TOKEN: access,
            ...secrets,
          },
          stdout: "pipe",
          stderr: "pipe",
        });
        const said = await new Response(child.stderr).text();
        expect([line, await child.exited, said]).toEqual([line, 0, said]);
      }
      expect((await plane.admin(["policy", "get", "acme"])).stdout).toBe(policy);
    }
  }, 600_000);
});
