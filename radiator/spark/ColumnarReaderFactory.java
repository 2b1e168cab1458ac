package radiator;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.metric.CustomTaskMetric;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.PythonCustomMetric$;
import org.apache.spark.sql.execution.datasources.v2.python.PythonInputPartition;
import org.apache.spark.sql.execution.datasources.v2.python.PythonPartitionReaderFactory;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource;
import org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource$;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.python.ArrowPythonRunner;
import org.apache.spark.sql.execution.python.MapInBatchEvaluatorFactory;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ArrowColumnVector;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarBatch;

/**
 * Passes the Arrow batches of a Python data source to the query as they arrive from Python.
 *
 * Spark's own factory (PythonPartitionReaderFactory) takes each batch apart into rows, and copies each row. Code that
 * Spark generates for a columnar scan, such as that of Parquet, reads the columns of the batch instead.
 *
 * Executors load this class from a jar that radiator/spark/scan_rule.py makes and adds to the session. It must not use
 * classes of the driver.
 */
public final class ColumnarReaderFactory implements PartitionReaderFactory {
    private final UserDefinedPythonDataSource source;
    private final byte[] readFunction;  // pickled
    private final StructType schema;
    private final scala.Option job;
    private final scala.Option session;

    public ColumnarReaderFactory(PythonPartitionReaderFactory rows) {
        source = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$source;
        readFunction =
            rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$pickledReadFunc;
        schema = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$outputSchema;
        job = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$jobArtifactUUID;
        session = rows.org$apache$spark$sql$execution$datasources$v2$python$PythonPartitionReaderFactory$$sessionUUID;
    }

    public boolean supportColumnarReads(InputPartition partition) {
        return true;
    }

    public PartitionReader createReader(InputPartition partition) {
        throw new UnsupportedOperationException("the scan is columnar");
    }

    public PartitionReader createColumnarReader(InputPartition partition) {
        return new Batches((PythonInputPartition) partition);
    }

    private final class Batches implements PartitionReader {
        private final scala.collection.immutable.Map metrics = PythonCustomMetric$.MODULE$.pythonMetrics();
        private final scala.collection.Iterator found;

        Batches(PythonInputPartition partition) {
            MapInBatchEvaluatorFactory made = source.createMapInBatchEvaluatorFactory(
                readFunction, "read_from_data_source", UserDefinedPythonDataSource$.MODULE$.readInputSchema(), schema,
                metrics, job, session
            );
            StructType input = made.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$inputSchema;
            ArrowPythonRunner runner = new ArrowPythonRunner(
                made.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$chainedFunc,
                made.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonEvalType,
                new int[][] {new int[] {0}},
                new StructType().add("struct", input),
                made.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$sessionLocalTimeZone,
                made.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$largeVarTypes,
                made.org$apache$spark$sql$execution$python$MapInBatchEvaluatorFactory$$pythonRunnerConf,
                metrics, job, session
            );
            TaskContext task = TaskContext.get();
            InternalRow row = new GenericInternalRow(new Object[] {partition.pickedPartition()});
            Object rows = single(new GenericInternalRow(new Object[] {row}));
            found = runner.compute(single(rows), task.partitionId(), task);
        }

        public boolean next() {
            return found.hasNext();
        }

        /** Returns the next batch. It is valid until the one after it is asked for. */
        public Object get() {
            ColumnarBatch batch = (ColumnarBatch) found.next();
            ArrowColumnVector rows = (ArrowColumnVector) batch.column(0);
            ColumnVector[] columns = new ColumnVector[schema.length()];
            for (int i = 0; i < columns.length; i++) {
                columns[i] = rows.getChild(i);
            }
            return new OpenBatch(columns, batch.numRows());
        }

        public void close() {
            // the end of the task closes the vectors and the pipe
        }

        public CustomTaskMetric[] currentMetricsValues() {
            scala.collection.immutable.Map values = scala.collection.immutable.Map$.MODULE$.empty();
            scala.collection.Iterator each = metrics.iterator();
            while (each.hasNext()) {
                scala.Tuple2 metric = (scala.Tuple2) each.next();
                values = (scala.collection.immutable.Map) values.updated(metric._1(), Long.valueOf(((SQLMetric) metric._2())._value()));
            }
            return source.createPythonTaskMetrics(values);
        }

    }

    /**
     * A batch whose vectors stay open when the query has read it, because the next batch is loaded into the same vectors.
     * A struct vector that has been closed has no fields any more.
     */
    private static final class OpenBatch extends ColumnarBatch {
        OpenBatch(ColumnVector[] columns, int rows) {
            super(columns, rows);
        }

        public void closeIfFreeable() {
        }
    }

    private static scala.collection.Iterator single(Object value) {
        return scala.collection.Iterator$.MODULE$.single(value);
    }
}
