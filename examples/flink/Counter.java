import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.util.Collector;

/** Numbers, one after the other: the job fails when one is lost or comes twice. */
public final class Counter {
    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.fromSequence(1, Long.MAX_VALUE)
                .map(number -> {
                    Thread.sleep(100);
                    return number;
                })
                .returns(Long.class)
                .keyBy(number -> 0)
                .process(new Check())
                .sinkTo(new DiscardingSink<>());
        env.execute("counter");
    }

    /** Holds the last number. */
    private static final class Check extends KeyedProcessFunction<Integer, Long, Long> {
        private transient ValueState<Long> last;

        @Override
        public void open(OpenContext context) {
            last = getRuntimeContext().getState(new ValueStateDescriptor<>("last", Long.class));
        }

        @Override
        public void processElement(Long number, Context context, Collector<Long> out) throws Exception {
            Long before = last.value();
            if (before != null && number != before + 1) {
                throw new IllegalStateException("expected " + (before + 1) + ", found " + number);
            }
            last.update(number);
            if (number % 100 == 0) {
                System.out.println("counted to " + number);
            }
            out.collect(number);
        }
    }
}
