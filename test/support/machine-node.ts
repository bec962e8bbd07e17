// What the systemd tests begin with: a network with a control plane, a lighthouse run by hand, and a machine that
// boots with our executable in it.

import { copyFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { agent, buildAgent, runAgent } from "./agent.ts";
import { startFarPlane, type FarPlane } from "./far-plane.ts";
import { makeLan, type Host, type Lan } from "./namespaces.ts";
import { makeMachine, type Machine } from "./nspawn.ts";
import { registerArguments, startEngine } from "./overlay.ts";
import { temporaryDirectory } from "./temporary.ts";

export type MachineNode = AsyncDisposable & {
  lan: Lan;
  plane: FarPlane;
  machine: Machine;
  /** Where the lighthouse runs: 10.77.0.1 in the overlay. */
  peer: Host;
  directory: string;
  /** `agent register` inside the machine, with a fresh token. Its standard output. */
  register(mode: "server" | "desktop"): Promise<string>;
};

/** Makes and boots it; `executable` is put in as /usr/local/bin/agent. */
export async function makeMachineNode(executable = agent): Promise<MachineNode> {
  buildAgent();
  const stack = new AsyncDisposableStack();
  try {
    const { path: directory } = stack.use(temporaryDirectory());
    const lan = stack.use(makeLan(["machine", "plane", "peer"]));
    const peer = lan.host("peer");
    const plane = stack.use(await startFarPlane(lan.host("plane"), join(directory, "plane")));
    await addLighthouse(plane, peer, directory, stack);
    const machine = stack.use(makeMachine(lan.host("machine").namespace));
    mkdirSync(join(machine.root, "usr/local/bin"), { recursive: true });
    copyFileSync(executable, join(machine.root, "usr/local/bin/agent"));
    await machine.boot();
    return {
      lan,
      plane,
      machine,
      peer,
      directory,
      async register(mode) {
        const token = await plane.makeToken();
        const where = `--api-base ${plane.url} --allow-plain-http --org-slug ${plane.slug} --node-name vm`;
        return machine.must(
          `echo ${token} | agent register ${where} --mode ${mode} --registration-token-file -`,
        );
      },
      [Symbol.asyncDispose]: () => stack.disposeAsync(),
    };
  } catch (error) {
    await stack.disposeAsync();
    throw error;
  }
}

async function addLighthouse(
  plane: FarPlane,
  peer: Host,
  directory: string,
  stack: AsyncDisposableStack,
): Promise<void> {
  const flags = ["--is-lighthouse", "--public-ip", peer.address, "--allow-plain-http"];
  const configRoot = join(directory, "peer");
  mkdirSync(configRoot);
  const args = registerArguments({ slug: plane.slug, plane }, configRoot, "lighthouse", flags);
  const input = await plane.makeToken(["--lighthouse"]);
  const { status, stderr } = await runAgent(args, { input, prefix: peer.inside([]) });
  if (status !== 0) throw new Error(`The lighthouse could not be registered: ${stderr}`);
  stack.use(await startEngine(peer, "/usr/bin/nebula", join(configRoot, plane.slug)));
}
