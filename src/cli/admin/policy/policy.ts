// `agent admin policy …`: the policy of an organization as a file. policy-test.ts has `test`, policy-import.ts `import`.

import { given } from "../../../base/given.ts";
import type { AnswerOf } from "../../../api/endpoint.ts";
import { flowsApi } from "../../../api/flows.ts";
import { policyApi } from "../../../api/policy.ts";
import { request } from "../../../api/request.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { quoteWord } from "../../../base/quote.ts";
import { countOf } from "../../../base/quantities.ts";
import type { Context, Implementation } from "../../command.ts";
import { orgArg } from "../../server/server-flags.ts";
import { switchFlag, valueFlag, wordArg } from "../../values.ts";
import { read, write } from "../api.ts";
import { momentOf } from "../events.ts";
import { fileByName } from "../lookup.ts";
import { isAboutPast, pastFlags, showPast } from "./past.ts";

const fileArg = {
  FILE: wordArg("The policy: YAML or JSON, - for standard input"),
};
export const pruneFlag = {
  prune: switchFlag("Also remove rules, routes, relays, aliases and groups that the file does not name"),
};

/** The text of a policy file, unchanged, since the control plane keeps it. "-" is standard input. */
export async function readPolicy(file: string, { system }: Context): Promise<string> {
  const text = file === "-" ? await system.readStdin() : await fileByName(file);
  const { requireShort, requireText } = await import("../../../server/policy/read-policy.ts");
  requireShort(text);
  requireText(text);
  return text;
}

export const get: Implementation = {
  args: { ...orgArg, ...pastFlags },
  examples: [
    `${brand.executable} admin policy get acme > policy.yaml`,
    `${brand.executable} admin policy get acme --at 2026-03-01T12:00Z`,
  ],
  async run(context) {
    const { output, words } = context;
    const [slug = ""] = words;
    if (isAboutPast(context)) return showPast(context, {});
    const found = await read(context, (api) => api.call(policyApi.retrieve, { slug }));
    if (found.drifted_since !== null) {
      output.say(`The state differs from the applied file since ${found.drifted_since}: this is the state.`);
    }
    if (found.unconfirmed !== null) {
      const { by, until } = found.unconfirmed;
      output.say(`It was applied by ${by}, and goes back at ${until} unless it is confirmed.`);
    }
    for (const sentence of found.tests.failing) output.say(`Failing: ${sentence}`);
    output.file(found, found.policy);
    return 0;
  },
};

export const propose: Implementation = {
  args: {
    ...orgArg,
    since: valueFlag(
      "TIME",
      "Look at flows since then: 14d (ago), 2026-11-22 or 2026-11-22T08:00:00Z, in UTC (default: 30d, all that are kept)",
    ),
  },
  notes:
    "Today's rules narrowed to what reported flows used, where every node on a rule's target side reported completely for the\n" +
    "whole time that you ask about; a younger rule stays. It permits nothing that the present policy does not, and changes\n" +
    "nothing: read it, look at its plan, then apply it. A rule whose description begins with `keep:` and a reason stays. Each\n" +
    "run is an event of the audit log.",
  examples: [
    `${brand.executable} admin policy propose acme --since 30d > proposed.yaml`,
    `${brand.executable} admin policy plan acme proposed.yaml --prune`,
  ],
  async run(context) {
    const { output, words, values, system } = context;
    const [slug = ""] = words;
    const body = given({ since: momentOf(values, "since", system) });
    const proposal = await read(context, (api) => api.call(flowsApi.propose, { slug }, body));
    output.file(proposal, proposal.policy);
    const { narrowed, removed, kept, observed_since: observedSince } = proposal;
    const flows =
      observedSince === null
        ? `No flows were reported (\`${brand.executable} admin flow list ${quoteWord(slug)}\` says why)`
        : `Flows were reported since ${observedSince}`;
    output.say(
      `${flows}; asked about since ${proposal.since}: ${countOf(narrowed, "rule")} narrowed, ${removed} removed, ${kept} kept as they are.`,
    );
  },
};

export const plan: Implementation = {
  args: { ...orgArg, ...fileArg, ...pruneFlag },
  notes: "Exit status 1: a test of the policy fails, so that apply would refuse it.",
  examples: [`${brand.executable} admin policy plan acme policy.yaml --prune`],
  async run(context) {
    const [slug = "", file = "-"] = context.words;
    const body = { policy: await readPolicy(file, context), prune: context.values.on("prune") };
    const planned = await read(context, (api) => api.call(policyApi.plan, { slug }, body));
    context.output.result(planned, await planTextOf(planned));
    const { lossSentence } = await import("../../../server/policy-files/plan-text.ts");
    const warning = lossSentence(planned);
    if (warning !== undefined) context.output.say(warning);
    return planned.tests.failing.length > 0 ? 1 : 0;
  },
};

/** The effect of a policy file, as `plan` and `apply` print it. */
async function planTextOf(planned: AnswerOf<typeof policyApi.plan>): Promise<string> {
  const { planText } = await import("../../../server/policy-files/plan-text.ts");
  return planText(planned);
}

export const apply: Implementation = {
  args: {
    ...orgArg,
    ...fileArg,
    ...pruneFlag,
    "policy-version": valueFlag("N", "The version that `plan` named: refuse if the policy has changed since"),
    confirm: valueFlag("TIME", "Go back after this time (10m) unless `policy confirm` is run"),
  },
  examples: [
    `${brand.executable} admin policy apply acme policy.yaml --prune --confirm 10m`,
    `${brand.executable} admin policy apply acme policy.yaml --policy-version 7`,
  ],
  async run(context) {
    const { values, words, output } = context;
    const [slug = "", file = "-"] = words;
    const body = {
      prune: values.on("prune"),
      ...given({
        version: values.integer("policy-version", 0, Number.MAX_SAFE_INTEGER),
        confirm: values.duration("confirm"),
      }),
      policy: await readPolicy(file, context),
    };
    const applied = await write(context, () => request(policyApi.apply, { slug }, body));
    if (applied === undefined) return;
    // A file that changes nothing makes no version.
    const { version, is_empty: isEmpty, unconfirmed_until: goesBackAt } = applied;
    const outcome = isEmpty ? `Version ${version} is in force` : `Applied version ${version}`;
    output.result(applied, `${await planTextOf(applied)}${outcome}\n`);
    if (goesBackAt === null) return;
    const line = `${brand.executable} admin policy confirm ${quoteWord(slug)}`;
    output.say(`It goes back at ${goesBackAt}. Run \`${line}\` to keep it.`);
  },
};

export const confirm: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin policy confirm acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const confirmed = await write(context, () => request(policyApi.confirm, { slug }));
    if (confirmed !== undefined) context.output.result(confirmed, `Confirmed version ${confirmed.version}\n`);
  },
};

export const revert: Implementation = {
  args: orgArg,
  examples: [`${brand.executable} admin policy revert acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const reverted = await write(context, () => request(policyApi.revert, { slug }));
    if (reverted === undefined) return;
    context.output.result(reverted, `Rolled the policy back: version ${reverted.version}\n`);
    for (const sentence of reverted.left_out ?? []) context.output.say(sentence);
  },
};

export const update: Implementation = {
  args: {
    ...orgArg,
    "by-file": valueFlag("on|off", "on: rules, groups and memberships are changed by `policy apply` only"),
  },
  examples: [`${brand.executable} admin policy update acme --by-file on`],
  async run(context) {
    const byFile = context.values.choice("by-file", ["on", "off"]);
    if (byFile === undefined) throw new AppError("usage", "Give --by-file on or --by-file off");
    const body = { by_file: byFile === "on" };
    const [slug = ""] = context.words;
    const updated = await write(context, () => request(policyApi.update, { slug }, body));
    if (updated === undefined) return;
    context.output.result(
      body,
      `The policy is changed ${body.by_file ? "by its file only" : "by hand, too"}\n`,
    );
  },
};
