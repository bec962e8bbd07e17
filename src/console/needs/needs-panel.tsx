// The panel "Needs you" of Overview: one row for each need, with its action.

import { useState } from "preact/hooks";
import type { Answer } from "../joining/waiting-columns.tsx";
import { pathOf } from "../frame/router.ts";
import { Answers, Button } from "../ui/button.tsx";
import { Sign } from "../ui/icon.tsx";
import { parts, usePart } from "../ui/lazy-parts.ts";
import { Panel } from "../ui/page.tsx";
import { Copy, When } from "../ui/parts.tsx";
import { Count } from "../ui/tag.tsx";
import type { Act, Need } from "./need-rows.ts";

/** Of more, a last row says that there are more. The link above leads to their nodes. */
const maxRows = 40;

/**
 * `count`: of all needs, each node once. It may differ from the number of `rows`: a node may have several, and a row may stand for
 * several nodes. `isEmpty`: there is no node that a link could lead to.
 */
type NeedsProps = {
  slug: string;
  rows: readonly Need[];
  count: number;
  isUrgent: boolean;
  isEmpty?: boolean;
};

export function NeedsYou({ slug, rows, count, isUrgent, isEmpty = false }: NeedsProps) {
  const all = <a href={`${pathOf(slug, "nodes")}?show=needs`}>Show in nodes</a>;
  const [answer, setAnswer] = useState<Answer>();
  const AnswerDialog = usePart(answer === undefined ? undefined : parts.joining)?.AnswerDialog;
  return (
    <Panel
      title="Needs you"
      beside={count === 0 ? null : <Count count={count} words="need you" isSoft={!isUrgent} />}
      actions={rows.length === 0 || isEmpty ? null : all}
    >
      {answer === undefined || AnswerDialog === undefined ? null : (
        <AnswerDialog {...answer} close={() => setAnswer(undefined)} />
      )}
      <ul class="lines needs">
        {rows.length === 0 ? (
          <li>
            <Sign name="on" />
            <span class="name">Nothing</span>
            <span class="what quiet">What needs your attention will be listed here, with what to do.</span>
          </li>
        ) : (
          rows.slice(0, maxRows).map((need) => <Row key={need.key} slug={slug} need={need} ask={setAnswer} />)
        )}
        {rows.length > maxRows ? (
          <li>
            <Sign name="warn" />
            <span class="name">And more</span>
          </li>
        ) : null}
      </ul>
    </Panel>
  );
}

/** A path that begins with "-" is that of the control plane; others are below the organization. */
const hrefOf = (slug: string, to: Need["to"]) => (to[0] === "-" ? pathOf(...to) : pathOf(slug, ...to));

/** `ask`: opens the dialog that asks before a request is answered. */
type RowProps = { slug: string; need: Need; ask(answer: Answer): void };

function Row({ slug, need: { sign, name, to, what, more, at, act }, ask }: RowProps) {
  return (
    <li>
      <Sign name={sign} />
      <a class="name cut" href={hrefOf(slug, to)} title={name}>
        <bdi>{name}</bdi>
      </a>
      <span class="what quiet cut" title={more === undefined ? what : `${what}\n${more}`}>
        <bdi>{what}</bdi>
      </span>
      {at == null ? <span /> : <When at={at} />}
      <span class="acts">
        <ActButton slug={slug} act={act} ask={ask} />
      </span>
    </li>
  );
}

/** What can be done about a need: an answer to a request, a command to copy, or a page to open. */
function ActButton({ slug, act, ask }: Pick<RowProps, "slug" | "ask"> & { act: Act }) {
  if ("request" in act)
    return <Answers name={act.request.name} give={(verb) => ask({ verb, machine: act.request })} />;
  if ("copy" in act)
    return (
      <Copy text={act.copy} label={act.copy}>
        {act.words}
      </Copy>
    );
  const search = act.query === undefined ? "" : `?${act.query}`;
  return (
    <Button isSmall={true} href={hrefOf(slug, act.to) + search}>
      {act.words}
    </Button>
  );
}
