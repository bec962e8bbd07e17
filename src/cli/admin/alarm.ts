// `agent admin alarm …`: what is wrong in an organization, and whether webhooks tell it.

import type { AnswerOf } from "../../api/endpoint.ts";
import { request } from "../../api/request.ts";
import { alarmsApi } from "../../api/webhooks/alarms.ts";
import { brand } from "../../brand.ts";
import { AppError } from "../../base/errors.ts";
import { countOf } from "../../base/quantities.ts";
import { quoteWord } from "../../base/quote.ts";
import type { Implementation } from "../command.ts";
import type { Mark } from "../table.ts";
import { orgArg } from "../server/server-flags.ts";
import { read, write } from "./api.ts";
import { isNumber } from "./lookup.ts";
import { switchFlag, wordArg } from "../values.ts";

const createLine = (slug: string) =>
  `${brand.executable} admin webhook create ${quoteWord(slug)} mailto:admin@example.org`;

export const list: Implementation = {
  args: {
    ...orgArg,
    all: switchFlag("Also the newest that ended"),
  },
  examples: [`${brand.executable} admin alarm list acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const found = await read(context, (api) => api.call(alarmsApi.list, { slug }));
    const alarms = found.filter((each) => context.values.on("all") || each.ended_at === null);
    context.output.list(
      { alarms },
      {
        columns: ["ID", "SINCE", "ENDED", "ALARM"],
        rows: alarms.map((each) => [
          each.id,
          each.since,
          each.ended_at,
          { text: each.title, mark: markOf(each) },
        ]),
        none: `Nothing is wrong in ${slug}.`,
      },
    );
  },
};

type Alarm = AnswerOf<typeof alarmsApi.list>[number];

function markOf({ ended_at: endedAt, urgent }: Alarm): Mark {
  if (endedAt !== null) return "good";
  return urgent ? "bad" : "wait";
}

export const show: Implementation = {
  args: {
    ...orgArg,
    ALARM: wordArg("The alarm's number, as `alarm list` shows it"),
  },
  examples: [`${brand.executable} admin alarm show acme 12`],
  async run(context) {
    const [slug = "", word = ""] = context.words;
    if (!isNumber(word)) throw new AppError("usage", `"${word}" is not an alarm's number.`);
    const alarm = await read(context, (api) => api.call(alarmsApi.retrieve, { slug, id: Number(word) }));
    context.output.facts(alarm, [
      ["alarm", alarm.title],
      ["what", alarm.text.replaceAll("\n", " ")],
      ["kind", alarm.kind],
      ["urgent", alarm.urgent ? "yes" : "no"],
      ["flapping", alarm.flapping ? "yes" : "no"],
      ["since", alarm.since],
      ["raised", alarm.raised_at],
      ["ended", alarm.ended_at ?? "not yet"],
    ]);
  },
};

export const test: Implementation = {
  notes:
    "Goes to every webhook that gets alarms, also in quiet hours. `webhook deliveries` tells what became of it.",
  args: orgArg,
  examples: [`${brand.executable} admin alarm test acme`],
  async run(context) {
    const [slug = ""] = context.words;
    const effect = `send a test alarm to the webhooks of ${slug} that get alarms`;
    const sent = await write(context, () => ({ ...request(alarmsApi.test, { slug }, {}), effect }));
    if (sent === undefined) return;
    const count = sent.webhooks;
    if (count === 0)
      throw new AppError("failed", `No webhook of ${slug} gets alarms`, {
        hint: `Create one: \`${createLine(slug)}\`.`,
      });
    context.output.result(sent, `A test alarm goes to ${countOf(count, "webhook")} of ${slug}\n`);
  },
};
