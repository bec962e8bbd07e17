// `--at` of `agent admin policy get` and `test`: what was in force at a moment, from the audit log, as a signed report.
// `agent admin audit verify-report` checks such a report without the control plane.

import { resolve } from "node:path";
import * as v from "valibot";
import { jsonText } from "../../../base/text.ts";
import type { GivenOf } from "../../../api/endpoint.ts";
import { NotedHash, PastReport, pastApi } from "../../../api/history/past.ts";
import { brand } from "../../../brand.ts";
import { AppError } from "../../../base/errors.ts";
import { given } from "../../../base/given.ts";
import { countOf, protocolAndPort } from "../../../base/quantities.ts";
import type { Context, Implementation } from "../../command.ts";
import { valueFlag, wordArg } from "../../values.ts";
import { read } from "../api.ts";
import { fileByName } from "../lookup.ts";
import { momentOf } from "../events.ts";

export const pastFlags = {
  at: valueFlag(
    "TIME",
    "At this moment: 24h (ago), 2026-03-01 or 2026-03-01T12:00Z, in UTC, or with a zone as +02:00",
  ),
  head: valueFlag("HASH", "With --at: find this hash, which you noted earlier, in the audit log"),
  report: valueFlag("FILE", "With --at: write the signed report to this new file"),
};

/** Whether --at is given. Throws usage for a flag that needs it. */
export function isAboutPast({ values }: Context): boolean {
  if (values.text("at") !== undefined) return true;
  if (values.firstOf(["head", "report"]) !== undefined) throw new AppError("usage", "Give --at, too");
  return false;
}

/** `at` and `head` come from the flags. */
type Asked = Omit<GivenOf<typeof pastApi.retrieve>, "at" | "head">;

/**
 * Called only if `--at` is given (isAboutPast). Shows the report, and returns the exit status: 1 if the packet was refused, no node
 * could reach the other, or something is doubtful.
 */
export async function showPast(context: Context, asked: Asked): Promise<number> {
  const { values, words, output, system } = context;
  const [slug = ""] = words;
  const file = values.text("report");
  const { requireFreePlace, writeNewFile } = await import("../../../base/files.ts");
  if (file !== undefined) requireFreePlace(file);
  if (file !== undefined && context.settings.dryRun) {
    const { planReplaced } = await import("../../../base/plan/plan-file.ts");
    output.plan([planReplaced(resolve(file), 0o600)]);
    return 0;
  }
  const at = momentOf(values, "at", system) ?? "";
  const query = { ...asked, at, ...given({ head: values.text("head") }) };
  const signed = await read(context, (api) => api.call(pastApi.retrieve, { slug }, query));
  const report = v.parse(jsonText(PastReport), signed.report);
  if (file !== undefined) writeNewFile(file, `${signed.report}\n${signed.signature}\n`, 0o600);
  const { access, policy } = report;
  if (policy === null) output.result(report, textOf(report));
  else output.file(report, policy);
  for (const sentence of report.doubts) output.say(sentence);
  const isRefused = policy === null && !access.some(({ allowed }) => allowed);
  return report.doubts.length > 0 || isRefused ? 1 : 0;
}

const byHandNote = "A change that was made by hand in the database counts like any other.";

/** `policy`: the text of the policy file, for `policy get`; null for `policy test`. `asked.from`: null if any node was asked about. */
function textOf({ at, policy, access, refused, did, rules, asked }: PastReport): string {
  if (policy !== null) return policy;
  const lines = access.flatMap(({ from, to, allowed, reason, certificates }) => [
    `${from.name} → ${to.name}: ${allowed ? "permitted" : "refused"}. ${reason}`,
    ...certificates.map(
      ({ fingerprint, groups, not_before: since, not_after: until }) =>
        `  certificate ${fingerprint}, ${since} to ${until}, groups ${groups.join(", ") || "none"}`,
    ),
  ]);
  const ruleLines = rules.map(
    ({ id, direction, protocol, ports, peer, target, description }) =>
      `  rule ${id}: ${direction} ${protocol}/${ports}, peer ${peer}, target ${target}${description === "" ? "" : ` (${description})`}`,
  );
  const countLine =
    asked.from === null
      ? [`${countOf(access.length, "node")} could reach ${asked.to}, ${refused} could not.`]
      : [];
  return `${[`At ${at}:`, ...lines, ...ruleLines, ...flowLines(did, asked), ...countLine, byHandNote].join("\n")}\n`;
}

/** Lines about who did reach the node on that day, as its own machine reported: `did` is null without a report. */
function flowLines(did: PastReport["did"], { from, to }: PastReport["asked"]): string[] {
  if (did === null)
    return [`  Who did reach it on that day is not known: ${to} reported no flows of that day.`];
  if (did.length === 0) {
    const subject = from === null ? "No node reached" : `${from} did not reach`;
    return [`  ${subject} ${to} on that day, as ${to} reported.`];
  }
  return did.map(
    ({ from: sender, address, protocol, port, flows, answered, first_at: first, last_at: last }) => {
      const who = sender === null ? address : `${sender.name} (${address})`;
      const service = protocolAndPort(protocol, port);
      const answers = answered === undefined ? "" : ` (${answered} answered)`;
      return `  ${who} did, as ${to} reported: ${service}, ${countOf(flows, "flow")}${answers}, ${first} to ${last}`;
    },
  );
}

export const verifyReport: Implementation = {
  notes:
    "Asks no control plane. --key: a file with the order key of the organization that you trust, such as node-config.json of one " +
    "of its nodes, which keeps the key that it got when it joined. --head: a hash that `audit verify` printed earlier, and that you " +
    "named when you asked for the report. Without one of them, it says what is unproved. Exit status 1: something is wrong, " +
    "unproved or doubtful.",
  args: {
    FILE: wordArg("Read this report, which `policy test` or `policy get` wrote with --report"),
    key: valueFlag("FILE", "Read the order key of the organization, or node-config.json of a node"),
    head: valueFlag("HASH", "A hash of the audit log that you noted earlier"),
  },
  examples: [`${brand.executable} admin audit verify-report db1.report --key node-config.json --head HASH`],
  async run({ values, words, output }) {
    const { verifyReport: verify } = await import("../../../server/history/verify-report.ts");
    const [file = ""] = words;
    const [key, head] = [values.text("key"), values.text("head")];
    if (head !== undefined && !v.is(NotedHash, head))
      throw new AppError("usage", "--head must be a hash of the audit log: 64 hex digits, in lower case");
    const { report, proved, unproved } = await verify(
      await fileByName(file),
      given({ head, key: key === undefined ? undefined : await fileByName(key) }),
    );
    const about = `A report about the organization ${report.organization}, made at ${report.made_at}`;
    output.result({ report, proved, unproved }, [about, ...proved, textOf(report)].join("\n"));
    for (const sentence of unproved) output.say(sentence);
    return unproved.length > 0 ? 1 : 0;
  },
};
