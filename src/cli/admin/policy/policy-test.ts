// `agent admin policy test`: runs the tests of a policy, or asks whether one node may reach another, now or at a past moment.

import { policyApi } from "../../../api/policy.ts";
import { rulesApi } from "../../../api/rules.ts";
import { AppError, hasCode } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { brand } from "../../../brand.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { read, type Api } from "../api.ts";
import { nodeByName } from "../lookup.ts";
import { isAboutPast, pastFlags, showPast } from "./past.ts";
import { pruneFlag, readPolicy } from "./policy.ts";
import { wordArg } from "../../values.ts";

export const test: Implementation = {
  args: {
    ...orgArg,
    FILE: wordArg("A policy: run its tests on the state that it would make. Or the sender, a node", {
      required: false,
    }),
    TO: wordArg("The receiver, a node", { required: false }),
    PORT: wordArg("5432, tcp/5432, udp/53 or icmp", { required: false }),
    ...pruneFlag,
    ...pastFlags,
  },
  notes:
    "Without FILE: runs the tests that are in force. With FROM, TO and PORT after ORG: whether one node may reach another, " +
    "and which rules permit it. Without PORT: everything that the rules permit between the two. Exit status 1: a test fails, " +
    "the packet is refused, or the rules permit nothing. With --at: the same for a moment that has passed, from the audit log, which " +
    "is verified while it is read; with `any` as FROM, every node that could reach TO (exit status 1: none could).",
  examples: [
    `${brand.executable} admin policy test acme policy.yaml`,
    `${brand.executable} admin policy test acme laptop db1 tcp/5432`,
    `${brand.executable} admin policy test acme laptop db1`,
    `${brand.executable} admin policy test acme any db1 tcp/5432 --at 2026-03-01T12:00Z --report db1.report`,
  ],
  async run(context) {
    const { words, values, output } = context;
    const [slug = "", file, to] = words;
    if (to !== undefined) return testPacket(context);
    if (isAboutPast(context)) throw new AppError("usage", "--at needs FROM and TO");
    const policy = file === undefined ? {} : { policy: await readPolicy(file, context) };
    const body = { ...policy, prune: values.on("prune") };
    const result = await read(context, (api) => api.call(policyApi.test, { slug }, body));
    const { count, failing } = result;
    const text = failing.map((sentence) => `${sentence}\n`).join("");
    output.result(result, `${text}${count - failing.length} of ${count} tests pass\n`);
    return failing.length > 0 ? 1 : 0;
  },
};

/** The word PORT: "5432" is of tcp, "icmp" has no port. Throws usage for another word. */
function packetOf(word: string): { protocol: "tcp" | "udp" | "icmp"; port?: string } {
  if (word === "icmp") return { protocol: "icmp" };
  const [, protocol = "tcp", port] = /^(?:(tcp|udp)\/)?(\d{1,5})$/.exec(word) ?? [];
  if (port === undefined)
    throw new AppError("usage", `PORT must be like 5432, udp/53 or icmp, not "${word}"`);
  return { protocol: protocol === "udp" ? "udp" : "tcp", port };
}

/** With FROM TO [PORT]: which rules permit it, now or at a moment that has passed. */
async function testPacket(context: Context): Promise<number> {
  const [slug = "", from = "", to = "", portWord] = context.words;
  const packet = portWord === undefined ? undefined : packetOf(portWord);
  if (isAboutPast(context))
    return showPast(context, { ...given({ from: from === "any" ? undefined : from }), to, ...packet });
  const verdict = await read(context, async (api) => {
    const ids = { from: await presentId(api, slug, from), to: await presentId(api, slug, to) };
    const { protocol = "tcp", port } = packet ?? {};
    return api.call(
      rulesApi.test,
      { slug },
      { ...ids, protocol, ...(port !== undefined && { port: Number(port) }) },
    );
  });
  if (packet !== undefined) {
    context.output.result(verdict, `${verdict.allowed ? "Permitted" : "Refused"}: ${verdict.reason}\n`);
    return verdict.allowed ? 0 : 1;
  }
  // Without PORT: everything that the rules permit between the two.
  const { permitted } = verdict;
  if (permitted === undefined) throw new AppError("usage", "This control plane is older: give PORT, too");
  const isAny = permitted.length > 0;
  context.output.result(
    verdict,
    isAny ? `Permitted: ${permitted.join(", ")}\n` : `Refused: ${verdict.reason}\n`,
  );
  return isAny ? 0 : 1;
}

/** Throws not_found, also with what to type about a node that is gone, or about every node. */
async function presentId(api: Api, slug: string, name: string): Promise<number> {
  try {
    return (await nodeByName(api, slug, name)).id;
  } catch (error) {
    if (!hasCode(error, "not_found")) throw error;
    const { hint = "", ...details } = error.details;
    const past = "Add `--at TIME` to ask about a moment that has passed, where FROM may also be `any`.";
    throw new AppError("not_found", error.message, { ...details, hint: `${hint} ${past}`.trim() });
  }
}
