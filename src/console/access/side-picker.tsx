// A side of a rule or of a test: the field that names it, the groups to press below it, and the form of a group that does not
// exist yet.

import { apiPath } from "../../api/endpoint.ts";
import { groupsApi } from "../../api/groups.ts";
import { call } from "../contact/api.ts";
import { useMemberNames } from "../activity/member-names.ts";
import { useNodes } from "../nodes/node-list.ts";
import { useProviderWords } from "../providers/provider-words.ts";
import { refresh, useList } from "../contact/resource.ts";
import { useAction } from "../ui/form.tsx";
import { Button } from "../ui/button.tsx";
import { Field, valueOf } from "../ui/field.tsx";
import { Failure } from "../ui/parts.tsx";
import { gatewayWords, sidesFor, toSide, type Sides } from "./sides.ts";

type KnownSides = Sides & {
  /** Whether the groups were read. */
  isRead: boolean;
};

/** All words that a side can have. */
export function useSides(slug: string): KnownSides {
  const known = useList(apiPath(groupsApi.list, { slug }, { page_size: "1000" })).data;
  return {
    isRead: known !== undefined,
    groups: (known ?? []).map(({ name }) => name),
    words: [...useProviderWords(slug).values()],
    emails: [...useMemberNames(slug).values()],
    nodes: (useNodes().data ?? []).map(({ name }) => name),
  };
}

/** The group that a side names and that does not exist. */
export function missingGroup(typed: string, { isRead, groups, nodes }: KnownSides): string | undefined {
  const [kind, name = ""] = toSide(typed, groups, nodes).split(/:(.*)/);
  return isRead && kind === "group" && !groups.includes(name) ? name : undefined;
}

type SidePickerProps = {
  label: "From" | "To";
  typed: string;
  set: (typed: string) => void;
  sides: KnownSides;
  mayBeSelf?: boolean;
  mayBeNetwork?: boolean;
  /** Whether the form was sent. */
  isChecked: boolean;
};

export function SidePicker({
  label,
  typed,
  set,
  sides,
  mayBeSelf = false,
  mayBeNetwork = false,
  isChecked,
}: SidePickerProps) {
  const list = `sides-${label}`;
  const offered = sidesFor(typed, sides, mayBeSelf);
  const missing = missingGroup(typed, sides);
  // Do not offer a new group for the beginning of a node's name.
  const alike = missing === undefined ? [] : sides.nodes.filter((name) => name.startsWith(missing));
  return (
    <>
      <Field
        label={label}
        help={`A group, a node (with the networks behind it)${mayBeNetwork ? ", a network" : ""}, or any.`}
      >
        <input
          required
          maxlength={260}
          list={list}
          autocomplete="off"
          spellcheck={false}
          value={typed}
          onInput={(event: Event) => set(valueOf(event))}
        />
        <datalist id={list}>
          {offered.map((each) => (
            <option key={each} value={each} />
          ))}
        </datalist>
      </Field>
      <Picks typed={typed} set={set} sides={sides} />
      <div class={isChecked ? "is-bad" : "limited"} role="status">
        {alike.length === 0 ? null : (
          <>
            Nodes:{" "}
            <bdi>
              {alike.slice(0, 5).join(", ")}
              {alike.length > 5 ? ", …" : ""}
            </bdi>
            .{" "}
          </>
        )}
        {missing === undefined ? null : (
          <>
            There is no group <bdi>{missing}</bdi>: create it, or name another.
          </>
        )}
      </div>
    </>
  );
}

const maxPicks = 6;

/** Groups to press, for a pointer: keys have the list of the field. */
function Picks({ typed, set, sides: { groups, nodes } }: Pick<SidePickerProps, "typed" | "set" | "sides">) {
  const chosen = toSide(typed, groups, nodes);
  const isChosen = (name: string) => chosen === `group:${name}`;
  // All groups are offered once one is chosen, else those that have what was typed.
  const hasChosen = chosen === "any" || groups.some(isChosen);
  const fitting = (hasChosen ? groups : groups.filter((name) => name.includes(typed.trim()))).toSorted(
    (one, other) => Number(isChosen(other)) - Number(isChosen(one)) || (one < other ? -1 : 1),
  );
  const shown = fitting.slice(0, maxPicks);
  const pick = (text: string, value: string, isOn: boolean) => (
    <button
      type="button"
      key={value}
      class="chip"
      tabindex={-1}
      aria-pressed={isOn}
      onClick={() => set(value)}
    >
      <bdi>{text}</bdi>
    </button>
  );
  return (
    <div class="picks">
      {pick("all nodes", "any", chosen === "any")}
      {shown.map((name) => pick(name, name, isChosen(name)))}
      {fitting.length > shown.length ? (
        <span class="faint">and {fitting.length - shown.length} more</span>
      ) : null}
    </div>
  );
}

/** Explains the words of a side that are needed less often. */
export function SideHelp() {
  return (
    <details>
      <summary>More that From and To can name</summary>
      <dl>
        {sideHelp.map(([word, meaning]) => (
          <>
            <dt>
              <code>{word}</code>
            </dt>
            <dd>{meaning}</dd>
          </>
        ))}
      </dl>
      <p>{gatewayWords}</p>
    </details>
  );
}

const sideHelp = [
  ["user:EMAIL", "the nodes of a member"],
  ["idp:GROUP", "the nodes of the users in a group at a provider of identities"],
  ["self", "nodes with the same owner: in From where they may reach, in To where they may send"],
  ["192.168.5.0/24", "a network, such as one behind nodes"],
] as const;

/** After the fields, so that Tab after a typing error leads to the next field, not to this button. */
export function NewGroup({ name, slug }: { name: string; slug: string }) {
  const { error, run } = useAction(async () => {
    await call(groupsApi.create, { slug }, { name });
    await refresh(apiPath(groupsApi.list, { slug }));
  });
  return (
    <>
      <p>
        <Button isSmall onClick={run}>
          Create the group <bdi>{name}</bdi>
        </Button>
      </p>
      {error?.fields["name"]?.map((sentence) => (
        <small class="is-bad" role="alert">
          {sentence}
        </small>
      ))}
      {error === undefined || error.fields["name"] !== undefined ? null : <Failure error={error} />}
    </>
  );
}
