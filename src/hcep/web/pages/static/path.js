// The path to the answer, lit down to the answer; beside each concept its most likely siblings, the others folded.
// A click on a sibling shows the concepts below it. All names are set as plain text.
const SHOWN = 3, WORTH_SHOWING = 0.005;
const Branches = {
  name: "Branches",
  props: { concepts: Array, chosen: String, below: Object },
  emits: ["choose"],
  data: () => ({ all: false }),
  computed: {
    shown() { return this.all ? this.concepts : this.concepts.filter((one, i) => !i || (i < SHOWN && one.share >= WORTH_SHOWING)); },
    opened() { return this.concepts.find((one) => this.below[one.id]?.length); },
  },
  template: `
    <div v-if="concepts.length" class="line beside">
      <button v-for="one in shown" :key="one.id" type="button" class="chip" :aria-pressed="String(one.id === chosen)" @click="$emit('choose', one.id)">
        <span class="wrap">{{ one.name }}</span><span class="number">{{ one.likely }}</span>
      </button>
      <button v-if="shown.length < concepts.length" type="button" class="button quiet tiny" @click="all = true">+ {{ concepts.length - shown.length }} more</button>
    </div>
    <div v-if="opened" class="branch"><Branches :key="opened.id" :concepts="below[opened.id]" :chosen="chosen" :below="below" @choose="$emit('choose', $event)" /></div>`,
};

export default {
  components: { Branches },
  props: { stops: Array, chosen: String, below: Object },
  emits: ["choose"],
  template: `
    <ol class="path">
      <li v-for="stop in stops" :key="stop.id" class="stop" :class="{ beyond: stop.beyond }">
        <button type="button" class="concept" :aria-pressed="String(stop.id === chosen)" @click="$emit('choose', stop.id)">
          <span class="wrap">{{ stop.name }}</span>
          <span class="bar" aria-hidden="true" :style="{ '--share': stop.share }"></span>
          <span class="number">{{ stop.likely }}</span>
        </button>
        <Branches :concepts="stop.siblings" :chosen="chosen" :below="below" @choose="$emit('choose', $event)" />
      </li>
    </ol>`,
};
