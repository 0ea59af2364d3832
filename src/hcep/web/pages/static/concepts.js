// The tree of concepts: opened level by level with mouse or keyboard; a concept can be dragged to another parent.
export default {
  template: `
    <ul class="concepts" role="tree" ref="tree" :aria-label="label" @keydown="walk">
      <li v-for="row in rows" :key="row.key" role="treeitem" :aria-level="row.level" :aria-selected="row.id === selected"
          :aria-expanded="row.node.below.length ? !!open[row.key] : undefined" :tabindex="row.key === current ? 0 : -1"
          :data-key="row.key" :data-id="row.id" :style="{ '--depth': row.level - 1 }"
          :class="{ selected: row.id === selected, over: row.key === over, leaf: !row.node.below.length }" :draggable="row.level > 1"
          @click="choose(row)" @focus="current = row.key" @dragstart="start($event, row)" @dragend="over = dragged = null"
          @dragover="hover($event, row)" @dragleave="over = null" @drop="drop($event, row)">
        <span class="twist" aria-hidden="true" @click.stop="toggle(row)">{{ row.node.below.length ? (open[row.key] ? '▾' : '▸') : '' }}</span>
        <span class="name">{{ row.node.name }}</span>
        <span v-if="row.node.findings" class="finding" :title="row.node.findings + ' possible problems'">{{ row.node.findings }}<span class="unseen"> possible problems</span></span>
        <span class="count" title="training photos">{{ row.node.photos }}</span>
      </li>
    </ul>`,
  props: { nodes: Array, selected: Number, label: String },
  emits: ["choose", "move"],
  data: () => ({ open: { 0: true }, current: "0", over: null, dragged: null }),
  computed: {
    rows() {
      const found = [], add = (id, key, level) => {
        const node = this.nodes[id];
        if (!node) return;
        found.push({ id, key, level, node });
        if (this.open[key]) for (const child of node.below) add(child, key + "/" + child, level + 1);
      };
      add(0, "0", 1);
      return found;
    },
  },
  watch: {
    nodes: { immediate: true, handler() { if (this.nodes.length <= 60) this.nodes.forEach((_, id) => this.unfold(id)); } },
  },
  methods: {
    unfold(id) { for (const row of this.rows) if (row.id === id) this.open[row.key] = true; },
    choose(row) { this.current = row.key; this.$emit("choose", row.id); },
    toggle(row) { this.open[row.key] = !this.open[row.key]; },
    reveal(trail) {
      let key = "";
      trail.forEach((id, k) => { key += (k ? "/" : "") + id; if (k < trail.length - 1) this.open[key] = true; });
      this.current = key;
      this.$nextTick(() => {
        const box = this.$el.parentElement, row = this.row(key);
        if (row && (row.offsetTop < box.scrollTop || row.offsetTop > box.scrollTop + box.clientHeight - 40))
          box.scrollTop = row.offsetTop - box.clientHeight / 2;
      });
    },
    row(key) { return [...this.$refs.tree.children].find((li) => li.dataset.key === key); },
    walk(event) {
      const i = this.rows.findIndex((row) => row.key === this.current), row = this.rows[i];
      if (!row) return;
      let next = row;
      if (event.key === "ArrowDown") next = this.rows[i + 1];
      else if (event.key === "ArrowUp") next = this.rows[i - 1];
      else if (event.key === "Home") next = this.rows[0];
      else if (event.key === "End") next = this.rows[this.rows.length - 1];
      else if (event.key === "ArrowRight" && row.node.below.length) this.open[row.key] ? (next = this.rows[i + 1]) : this.toggle(row);
      else if (event.key === "ArrowLeft") this.open[row.key] ? this.toggle(row) : (next = this.rows.find((r) => r.key === row.key.replace(/\/[^/]*$/, "")));
      else if (event.key === "Enter" || event.key === " ") this.choose(row);
      else return;
      event.preventDefault();
      if (next) { this.current = next.key; this.$nextTick(() => this.row(next.key)?.focus()); }
    },
    start(event, row) {
      this.dragged = row;
      event.dataTransfer.setData("text/plain", row.node.name);
      event.dataTransfer.effectAllowed = "move";
    },
    hover(event, row) {
      if (!this.dragged || row.key === this.dragged.key || row.key.startsWith(this.dragged.key + "/")) return;
      event.preventDefault();
      if (this.over === row.key) return;
      this.over = row.key;
      setTimeout(() => { if (this.over === row.key && row.node.below.length) this.open[row.key] = true; }, 700);
    },
    drop(event, row) {
      event.preventDefault();
      const moved = this.dragged;
      this.over = this.dragged = null;
      if (moved) this.$emit("move", [moved.id, row.id]);
    },
  },
};
