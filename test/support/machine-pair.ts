// Two booted machines as the documents set them up: `control`, with the control plane and its lighthouse, and `web`, a node in
// server mode.

import { appendFileSync, copyFileSync, mkdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { buildAgent } from "./agent.ts";
import { makeLan, type Lan } from "./namespaces.ts";
import { makeMachine, type Machine } from "./nspawn.ts";
import { temporaryDirectory } from "./temporary.ts";

export type MachinePair = { lan: Lan; control: Machine; web: Machine } & AsyncDisposable;

type PairOptions = {
  /** Of all addresses. */
  prefix?: string;
  /** What is in the network before the machines are. */
  prepare?(lan: Lan, directory: string): Promise<AsyncDisposable>;
};

export async function makeMachinePair({ prefix, prepare }: PairOptions = {}): Promise<MachinePair> {
  await using made = new AsyncDisposableStack();
  const directory = made.use(temporaryDirectory());
  const place = join(directory.path, "usr/local/bin/agent");
  mkdirSync(dirname(place), { recursive: true });
  copyFileSync(buildAgent(), place);
  const lan = made.use(makeLan(["control", "web"], prefix));
  if (prepare !== undefined) made.use(await prepare(lan, directory.path));
  const boot = async (name: string) => {
    const machine = made.use(makeMachine(lan.host(name).namespace, directory.path));
    await machine.boot();
    appendFileSync(join(machine.root, "etc/hosts"), `${lan.host("control").address} control.example.org\n`);
    return machine;
  };
  const [control, web] = [await boot("control"), await boot("web")];
  const printed = await control.must(
    "cd /root && agent setup --yes --public-name control.example.org --email you@example.org --org-slug acme",
    120_000,
  );
  const [key = ""] = printed.match(/oaj1[\w-]+/g) ?? [];
  await web.must(`agent up ${key} --node-name web --mode server`, 60_000);
  const all = made.move();
  return { lan, control, web, [Symbol.asyncDispose]: () => all.disposeAsync() };
}
