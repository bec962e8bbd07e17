// The question of the explainer as a form of three fields. It is kept in the address.

import { useId, useState } from "preact/hooks";
import type { ListedNode } from "../nodes/listed-nodes.ts";
import { query, setQuery } from "../frame/router.ts";
import { valueOf } from "../ui/field.tsx";
import { trafficFrom, trafficIn, trafficText, type Traffic } from "./network-between.ts";

const maxOffered = 50;
/** The nodes whose names contain what was typed. */
export const namedLike = (nodes: readonly ListedNode[], typed: string) =>
  nodes.filter(({ name }) => name.includes(typed));

export type Question = Record<"from" | "to", string> & Traffic;

export function questionOf(words: URLSearchParams): Question {
  const word = (key: string) => words.get(key) ?? "";
  return { from: word("from"), to: word("to"), ...trafficFrom(word("protocol"), word("port")) };
}

type FormProps = {
  question: Question;
  nodes: readonly ListedNode[];
  fault: string | undefined;
};

export function QuestionForm({ question: { from, to, ...traffic }, nodes, fault }: FormProps) {
  const id = useId();
  // The traffic as it was typed is kept while the address says the same: the address has it in another form.
  const [typed, setTyped] = useState("");
  const isTyped = trafficText(trafficIn(typed)) === trafficText(traffic);
  const set = (key: string) => (event: Event) => setQuery({ [key]: valueOf(event) });
  const setTraffic = (event: Event) => {
    setTyped(valueOf(event));
    const { protocol, port } = trafficIn(valueOf(event));
    setQuery({ protocol: protocol === "any" ? undefined : protocol, port });
  };
  /** Enter accepts a beginning that only one node has. */
  const complete = (event: Event) => {
    event.preventDefault();
    for (const key of ["from", "to"]) {
      // Reads the address: the last typed text may not be drawn yet.
      const [only, ...others] = namedLike(nodes, query.peek().get(key) ?? "");
      if (only !== undefined && others.length === 0) setQuery({ [key]: only.name });
    }
  };
  return (
    <form class="ask" onSubmit={complete}>
      <NodePicker label="From node" name={from} set={set("from")} nodes={nodes} />
      <span>may reach</span>
      <NodePicker label="To node" name={to} set={set("to")} nodes={nodes} />
      <span>on</span>
      <input
        class="mono"
        aria-label="Protocol and port"
        aria-invalid={fault !== undefined}
        aria-describedby={id}
        list={`${id}-list`}
        maxlength={20}
        placeholder="any"
        autocomplete="off"
        spellcheck={false}
        value={isTyped ? typed : trafficText(traffic)}
        onInput={setTraffic}
      />
      <datalist id={`${id}-list`}>
        {["anything", "icmp", "tcp", "udp", "tcp 22", "tcp 443", "udp 53"].map((each) => (
          <option key={each} value={each} />
        ))}
      </datalist>
      <button>Ask</button>
      <small id={id} class="is-bad" role="alert">
        {fault}
      </small>
    </form>
  );
}

type PickerProps = {
  label: string;
  name: string;
  set: (event: Event) => void;
  nodes: readonly ListedNode[];
};

function NodePicker({ label, name, set, nodes }: PickerProps) {
  const list = label.replaceAll(" ", "-");
  const offered = namedLike(nodes, name).slice(0, maxOffered);
  return (
    <>
      <input
        aria-label={label}
        placeholder="node"
        list={list}
        maxlength={255}
        autocomplete="off"
        spellcheck={false}
        value={name}
        onInput={set}
      />
      <datalist id={list}>
        {offered.map((node) => (
          <option key={node.id} value={node.name} />
        ))}
      </datalist>
    </>
  );
}
