// The machines that wait for an administrator's approval: what each asks for, and the buttons to approve or refuse it.

import { organizationSettings, organizationsApi } from "../../api/organizations.ts";
import { apiPath } from "../../api/endpoint.ts";
import { useMemo, useState } from "preact/hooks";
import { mayAdminister, currentSlug } from "../contact/me.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { approvedPath, keyOf, registrationsPath, type Registration } from "./registrations.ts";
import { useList, useResource } from "../contact/resource.ts";
import { pathOf, query, setQuery } from "../frame/router.ts";
import { Button, type Verb } from "../ui/button.tsx";
import { isNarrow } from "../ui/narrow.ts";
import { ordered } from "../ui/lists/order.ts";
import { Panel } from "../ui/page.tsx";
import { Empty, Loading, When } from "../ui/parts.tsx";
import { Rows } from "../ui/lists/rows.tsx";
import { Export, searched } from "../ui/lists/tools.tsx";
import type { Selection } from "../nodes/filter.ts";
import { columnsOf, narrowColumns, type Answer } from "./waiting-columns.tsx";
import { plural } from "../words/numbers.ts";
import { AnswerDialog, AnswerTogether, comparison, useTwinsAndTokens } from "./answer-dialogs.tsx";

/** The list of machines that wait, below the search that all lists of nodes have. */
export function Waiting() {
  const slug = currentSlug.value ?? "";
  const { data, error, readAt = 0 } = useList(mayAdminister.value ? registrationsPath(slug) : "");
  // `twins`: names that several machines or nodes have.
  const { twins, tokens } = useTwinsAndTokens();
  const owners = useMemberNames(slug);
  const order = query.value.get("order") ?? "name";
  const isFound = searched();
  const [selected, setSelected] = useState<Selection>(new Set());
  /** The open dialogs: an answer to one machine, and to several. */
  const [answer, setAnswer] = useState<Answer>();
  const [together, setTogether] = useState<{ verb: Verb; machines: readonly Registration[] }>();
  /** A machine was refused here that came with a join key, which may still work. */
  const [hasRefused, setRefused] = useState(false);
  const columns = useMemo(
    () => columnsOf({ twins, tokens, owners, readAt, give: setAnswer }),
    [twins, tokens, owners, readAt],
  );
  if (!mayAdminister.value) return <Empty text="Administrators of the organization approve nodes." />;
  if (data === undefined) return <Loading rows={4} error={error} />;
  const all = ordered(data, columns, order);
  const shown = all.filter((each) =>
    isFound([each.name, each.seen_from, ...each.groups, each.key_sha256].join(" ")),
  );
  const picked = shown.filter(({ id }) => selected.has(id));
  // Without a selection, the buttons answer all that are shown.
  const chosen = picked.length === 0 ? shown : picked;
  return (
    <>
      <div class="one-line">
        <p class="quiet">
          {all.length === 0 ? null : (
            <>
              {comparison}; run again, it shows the same one. A machine that asks for anything else waits
              again.{" "}
            </>
          )}
          <WhichWait slug={slug} />
        </p>
        <span class="group tight">
          {all.length < 2 ? null : (
            <AnswerButtons count={chosen.length} give={(verb) => setTogether({ verb, machines: chosen })} />
          )}
          {all.length === 0 || isNarrow.value ? null : (
            <Export
              file={`${slug}-waiting.csv`}
              items={chosen}
              // Without the last one, which has the buttons.
              columns={columns.slice(0, -1)}
              isSmall={true}
            />
          )}
        </span>
      </div>
      <div role="status">
        {hasRefused ? (
          <p class="notice">
            The join keys of refused machines may still work. Revoke them:{" "}
            <a href={pathOf(slug, "tokens")}>Keys and tokens</a>
          </p>
        ) : null}
      </div>
      {shown.length === 0 ? (
        <Empty text={all.length === 0 ? "No node waits for approval." : "None that waits is like that."} />
      ) : (
        <Rows
          label="Nodes that wait"
          items={shown}
          columns={isNarrow.value ? narrowColumns(columns) : columns}
          keyOf={({ id }: Registration) => id}
          order={order}
          setOrder={(next: string) => setQuery({ order: next === "name" ? undefined : next })}
          {...(all.length < 2 ? {} : { selected, select: setSelected })}
        />
      )}
      <Approved give={setAnswer} />
      {answer === undefined ? null : (
        <AnswerDialog {...answer} warn={setRefused} close={() => setAnswer(undefined)} />
      )}
      {together === undefined ? null : (
        <AnswerTogether {...together} warn={setRefused} close={() => setTogether(undefined)} />
      )}
    </>
  );
}

/** The buttons that answer several machines at once. */
const AnswerButtons = ({ count, give }: { count: number; give(verb: Verb): void }) => (
  <>
    <Button isSmall={true} disabled={count === 0} onClick={() => give("refuse")}>
      Refuse {plural(count, "node")}
    </Button>
    <Button kind="tint" isSmall={true} disabled={count === 0} onClick={() => give("approve")}>
      Approve {plural(count, "node")}
    </Button>
  </>
);

/** The setting that decides which nodes wait. */
function WhichWait({ slug }: { slug: string }) {
  const { data } = useResource(apiPath(organizationsApi.retrieve, { slug }));
  // `words` are the API's values, and `choices`, in the same order, what the page calls them.
  const at = data && organizationSettings.node_approval.words.indexOf(data.node_approval);
  const chosen = at === undefined ? undefined : organizationSettings.node_approval.choices[at];
  return (
    <>
      {chosen && `${organizationSettings.node_approval.label}: ${chosen}. `}
      <a href={pathOf(slug, "settings")}>Settings</a>
    </>
  );
}

/** The approved machines that have not come back; usually none, because they come back within seconds. */
function Approved({ give }: { give(answer: Answer): void }) {
  const { data: machines = [] } = useList(approvedPath(currentSlug.value ?? ""));
  if (machines.length === 0) return null;
  return (
    <Panel title="Approved, not back yet">
      <p class="in quiet">
        A machine comes back within 30 s while its <code>agent up</code> or <code>agent register</code> waits.
        If not, run the same line there again: it goes on with the same key. If the line is lost, withdraw the
        approval.
      </p>
      <ul class="lines one-action">
        {machines.map((machine) => (
          <li key={machine.id}>
            <span>
              <bdi class="name">{machine.name}</bdi> <code>{keyOf(machine)}</code> approved{" "}
              <When at={machine.approved_at} />, has not come back yet
            </span>
            <Button isSmall={true} onClick={() => give({ verb: "refuse", machine })}>
              Withdraw<span class="unseen"> the approval of {machine.name}</span>
            </Button>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
